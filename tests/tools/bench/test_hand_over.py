"""Elections that are handed over between real processes: the means of measuring, not the figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tools.bench.conftest import Bench


@pytest.mark.slow
def test_a_holder_is_killed_and_another_one_releases(bench: Bench, tmp_path: Path) -> None:
    result = bench("--hand-over", 1, "--output", "json", "--directory", tmp_path)

    assert result.status == 0, result.err
    found = json.loads(result.out)
    assert list(found) == ["times", "ttl_ms", "beyond_ttl_ms", "released_ms"]
    assert found["beyond_ttl_ms"]["max"] >= 0, "nobody leads before the session of the holder may have ended"
    assert found["released_ms"]["min"] > 0
    assert list(tmp_path.iterdir()) == []


def test_no_hand_over_is_no_measurement(bench: Bench) -> None:
    assert "at least once" in bench("--hand-over", 0).err
