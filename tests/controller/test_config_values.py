from __future__ import annotations

import pytest

from kraftlib.controller.config_values import ConfigType, Setting, anything, double_text, fraction, number, whole
from kraftlib.controller.topic_configs import SETTINGS


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        (ConfigType.INT, " 007 ", "7"),
        (ConfigType.LONG, "-1", "-1"),
        (ConfigType.DOUBLE, "0.250", "0.25"),
        (ConfigType.LIST, " compact , delete", "compact,delete"),
        (ConfigType.LIST, "a,,b", "a,,b"),
        (ConfigType.LIST, "a, b,,a ,b,", "a,b,"),
        (ConfigType.INT, "\x015\x00", "5"),
        (ConfigType.BOOLEAN, "True", "true"),
        (ConfigType.STRING, " CreateTime", "CreateTime"),
    ],
)
def test_a_value_is_written_as_kafka_writes_it(kind: ConfigType, value: str, written: str) -> None:
    assert Setting(kind, "", anything).written(value) == written


def test_replicas_that_are_throttled_may_come_twice() -> None:
    assert SETTINGS["leader.replication.throttled.replicas"].written("0:1, 0:2,0:1") == "0:1,0:2,0:1"
    assert SETTINGS["cleanup.policy"].written("delete, compact,delete") == "delete,compact"


@pytest.mark.parametrize("text", ["5", "+5", "05", "\uff15", "\u0665"])
def test_numbers_are_those_of_java(text: str) -> None:
    assert whole(5, 5)(text)


@pytest.mark.parametrize("text", ["1_0", "5L", "5.0", "0x5", "", "+", "\xa05", "5 ", "\U0001d7d3", "9" * 5_000])
def test_what_python_reads_and_java_does_not_is_no_number(text: str) -> None:
    assert not whole(0)(text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0.5f", "0.5"), (".5", "0.5"), ("5.D", "5.0"), ("0x1p-1", "0.5"), ("0x.8P1d", "1.0"), ("1e-7", "1.0E-7"),
        ("0.00012", "1.2E-4"), ("12345678", "1.2345678E7"), ("-1e300", "-1.0E300"), ("1234.5", "1234.5"),
        ("-NaN", "NaN"), ("+Infinity", "Infinity"), ("-Infinity", "-Infinity"), ("-0.0", "-0.0"),
    ],
)  # fmt: skip
def test_doubles_are_read_and_written_as_java_does(text: str, written: str) -> None:
    assert double_text(number(text)) == written


def test_a_fraction_is_not_outside() -> None:
    assert all(map(fraction, ("0", "1", "NaN", "-0.0")))
    assert not any(map(fraction, ("1.1", "-0.1", "nan", "inf", "1_0e-9", "", "0x1", "1l")))
