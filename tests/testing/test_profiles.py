"""Kinds of runs."""

from __future__ import annotations

import pytest

from kraftlib.errors import ConfigError
from kraftlib.testing.faults import FAULTS
from kraftlib.testing.profiles import PROFILES, profile_of


def test_profiles_name_faults_that_exist() -> None:
    for name, profile in PROFILES.items():
        assert profile.name == name
        assert set(profile.faults) <= set(FAULTS)


def test_an_unknown_profile_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(ConfigError, match="no profile 'nonsense'; there are swarm, network"):
        profile_of("nonsense")


def test_the_swarm_knows_every_fault() -> None:
    assert set(profile_of("swarm").faults) == set(FAULTS)
