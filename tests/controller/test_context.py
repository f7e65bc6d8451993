from __future__ import annotations

import pytest

from kraftlib.controller import ControllerConfig
from kraftlib.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("broker_session_timeout_ms", 0),
        ("no_op_interval_ms", -1),
        ("leader_imbalance_check_interval_ms", -1),
        ("num_partitions", 0),
        ("default_replication_factor", 0),
    ],
)
def test_a_configuration_that_cannot_work_names_the_value(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{name}={value}"):
        ControllerConfig(**{name: value})
