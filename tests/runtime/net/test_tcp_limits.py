"""Limits are checked when they are made."""

from __future__ import annotations

import attrs
import pytest

from kraftlib.errors import ConfigError
from kraftlib.runtime.net.tcp_limits import TcpLimits


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(TcpLimits)])
def test_a_limit_that_lets_nobody_in_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        TcpLimits(**{name: -1})
