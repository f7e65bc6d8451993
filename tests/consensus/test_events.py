"""The union of events is closed: the door can know them all."""

from __future__ import annotations

import typing

import attrs

from kraftlib.consensus import events as events_module


def test_the_union_names_every_event_of_the_module() -> None:
    """A new event that is not in it would have no handler."""
    declared = {
        value
        for value in vars(events_module).values()
        if isinstance(value, type) and attrs.has(value) and value.__module__ == events_module.__name__
    }

    members = {typing.get_origin(member) or member for member in typing.get_args(events_module.Event)}
    assert members == declared
