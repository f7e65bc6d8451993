from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib import Endpoint
from kraftlib.controller.bootstrap import controller_levels, format_controller, read_levels
from kraftlib.errors import ConfigError


@pytest.mark.parametrize("release", ["3.9", "4.0", "4.3"])
def test_a_cluster_begins_with_the_levels_of_its_release_that_are_supported(release: str, tmp_path: Path) -> None:
    place = Endpoint("127.0.0.1", 9_093)
    format_controller(tmp_path / "c", node_id=1, cluster_id="blue", standalone=place, release=release)
    levels = read_levels(tmp_path / "c")
    assert levels == controller_levels(release)
    assert levels["metadata.version"] == {"3.9": 21, "4.0": 25, "4.3": 30}[release]
    assert levels.get("eligible.leader.replicas.version", 0) == (release == "4.3")


def test_a_release_that_is_too_new_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"4\.4"):
        format_controller(tmp_path / "c", node_id=1, cluster_id="blue", release="4.4")
    assert not (tmp_path / "c").exists()
    with pytest.raises(ConfigError, match="is missing"):
        read_levels(tmp_path)
