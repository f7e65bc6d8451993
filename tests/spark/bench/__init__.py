"""Measures the data pipeline: `python3 dev.py bench-spark [--check] [--only NAME,…] [--mb N]`.

Rates belong to a machine, ratios carry over: so every figure stands beside a limit that is taken in the same run, in
turns with it, and the goals are mostly ratios. Of several rounds the best counts, for both sides alike: what disturbs a
round only ever makes it slower.
"""
