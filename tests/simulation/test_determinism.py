"""The same seed is the same run: in another process, with another order of sets and dictionaries."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
from tools.simulate.seeds import run_seed
print(run_seed(11, profile="swarm").trace_hash)
print(run_seed(11, profile="swarm", trouble_ms=100).trace_hash)
"""


@pytest.fixture(scope="module")
def hashes() -> list[str]:
    return [hashes_with("0"), hashes_with("12345")]


def hashes_with(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return process.stdout


def test_a_seed_has_one_trace_whatever_the_hash_seed(hashes: list[str]) -> None:
    first, second = hashes
    assert len(set(first.split())) == 2, "another run has another trace"
    assert first == second
