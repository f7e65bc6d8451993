"""kraftlib.validators: an error names the option, the value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kraftlib.errors import ConfigError
from kraftlib.validators import at_least, between, is_bool, one_of


@pytest.mark.parametrize(
    ("validator", "right", "wrong", "message"),
    [
        (at_least(1), 1, 0, "size=0 must be an integer of at least 1"),
        (at_least(1), 1, True, "size=True must be an integer"),
        (between(1, 3), 3, 4, "size=4 must be an integer from 1 to 3"),
        (one_of("a", "b"), "b", "c", "size='c' must be one of a, b"),
        (is_bool, False, 0, "size=0 must be true or false"),
    ],
)
def test_a_validator_names_option_value_and_remedy(
    validator: Callable[..., None], right: Any, wrong: Any, message: str
) -> None:
    option = attrs.make_class("Option", {"size": attrs.field(validator=validator)})
    assert option(right).size is right
    with pytest.raises(ConfigError, match=message):
        option(wrong)
