from __future__ import annotations

import pytest

from kraftlib.controller.broker_configs import SENSITIVE, is_for_all, kind_of
from kraftlib.controller.config_values import ConfigType


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("log.retention.ms", ConfigType.LONG),
        ("ssl.key.password", ConfigType.PASSWORD),
        ("listener.name.external.ssl.key.password", ConfigType.PASSWORD),
        ("listener.name.external.scram-sha-256.sasl.jaas.config", ConfigType.PASSWORD),
        ("listener.name.external.max.connections", ConfigType.INT),
        ("listener.name.external.secret", ConfigType.UNKNOWN),
        ("my.secret", ConfigType.UNKNOWN),
    ],
)
def test_a_setting_has_the_type_of_its_name(name: str, kind: ConfigType) -> None:
    assert kind_of(name) is kind
    assert (kind in SENSITIVE) is ("secret" in name or kind is ConfigType.PASSWORD)


@pytest.mark.parametrize(
    ("name", "is_so"),
    [
        ("log.retention.ms", True),
        ("max.connections", True),
        ("listener.name.a.max.connections", True),
        ("listener.name.a.num.network.threads", True),
        ("listener.name.a.max.connectionsx", False),
        ("listener.name.a.log.retention.ms", False),
        ("listener.name.a.", False),
        ("listener.name.a", True),
        ("ssl.enabled.protocols", False),
        ("ssl.nobody", True),
        ("sasl.jaas.config", False),
        ("cordoned.log.dirs", False),
        ("listeners", False),
        ("nobody", True),
    ],
)
def test_some_settings_are_for_single_brokers(name: str, is_so: bool) -> None:
    assert is_for_all(name) is is_so
