from __future__ import annotations

import pytest

from kraftlib.controller.config_values import ConfigType, Setting, anything


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        (ConfigType.INT, " 007 ", "7"),
        (ConfigType.LONG, "-1", "-1"),
        (ConfigType.DOUBLE, "0.250", "0.25"),
        (ConfigType.LIST, "compact, delete,", "compact,delete"),
        (ConfigType.BOOLEAN, "True", "true"),
        (ConfigType.STRING, " CreateTime", "CreateTime"),
    ],
)
def test_a_value_is_written_as_kafka_writes_it(kind: ConfigType, value: str, written: str) -> None:
    assert Setting(kind, "", anything).written(value) == written
