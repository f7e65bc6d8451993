"""The core fuzzer: real cores, and nothing else, in schedules that chance makes up.

The simulator (`kraftlib.testing.simulation`) runs executor, applier and clients on simulated time, so an event costs it
a while, and messages keep an order that networks keep. Here only `Replica.handle` runs: any message may arrive next,
any flush end, any deadline pass, and the power may go before any action of a list. `budget` says how much a disk may
lose, `themes` where a schedule looks, `promises` and `healing` which promises must hold.

    store       the disk of one replica            world       messages, the clock, the steps
    host        its core, and its actions          fuzz        one run from a seed
    coverage    the pairs of situation and event that a run has reached, here and in the full simulator

The profiles `core` and `core-...` of `dev.py simulate` are its themes, and `dev.py campaign` runs them, too.
"""
