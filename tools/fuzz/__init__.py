"""Frames of strangers: the dearest ones of each API, measured."""
