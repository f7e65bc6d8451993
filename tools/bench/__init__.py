"""Benchmarks: `python3 dev.py bench`, or `python -m tools.bench`.

`commits` measures commits per second and has the options of all others: `failover`, `snapshot`, `storage`, `catch_up`.
`machine` measures what the machine itself can do. The load runs in the voters (`tools.bench.load`).
"""

from __future__ import annotations
