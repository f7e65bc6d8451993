"""Frames of strangers: the dearest ones of each API, measured, and a fuzzer that sends mutated ones to a replica."""
