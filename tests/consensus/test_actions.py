"""The union of actions is closed: who performs them can know them all."""

from __future__ import annotations

import typing

import attrs

from kraftlib.consensus import actions as actions_module


def test_the_union_names_every_action_of_the_module() -> None:
    """A new action that is not in it would be performed by nobody."""
    declared = {
        value
        for value in vars(actions_module).values()
        if isinstance(value, type) and attrs.has(value) and value.__module__ == actions_module.__name__
    }

    members = {typing.get_origin(member) or member for member in typing.get_args(actions_module.Action)}
    assert members == declared
