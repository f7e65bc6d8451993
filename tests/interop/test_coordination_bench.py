"""Medians, ratios and the command line; the measurement itself is `dev.py bench --against etcd,zookeeper`."""

from __future__ import annotations

import pytest

from tests.interop.coordination_bench import main, points


def trial(per_s: float) -> dict[str, float]:
    return {"per_s": per_s, "p50_us": 1.0, "p99_us": 2.0}


def test_a_point_is_the_median_of_its_trials_and_ours_is_compared_with_it() -> None:
    ours, theirs = ("kraftlib", 64, "put"), ("etcd", 64, "put")
    found = points({ours: [trial(30), trial(10), trial(20)], theirs: [trial(40), trial(50), trial(9)]})
    assert [(point["service"], point["per_s"], point["ours_is"]) for point in found] == [
        ("kraftlib", 20, 1.0),
        ("etcd", 40, 0.5),
    ]


@pytest.mark.parametrize("arguments", ["--against consul", "--clients 0", "--operations delete"])
def test_what_cannot_be_measured_is_refused(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments.split())
    assert arguments.split()[1] in capsys.readouterr().err
