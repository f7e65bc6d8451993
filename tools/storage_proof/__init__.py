"""Judges of the storage: what a power loss may leave of the files of a replica, read again by the real recovery."""
