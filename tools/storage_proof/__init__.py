"""Judges of the storage: every state in which a power loss may leave the files of a replica.

os_watch        calls of the operating system, watched or refused
file_trace      what a module does to files, recorded
crash_states    the states in which a crash may leave them
platter         the files that a power loss leaves of a simulated log, recovered for real
"""
