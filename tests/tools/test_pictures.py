"""The pictures of the documentation are up to date, and show what the code says."""

from __future__ import annotations

from xml.etree import ElementTree

from kraftlib.consensus import actions, events
from kraftlib.consensus.roles import NEXT_ROLES
from tests.test_layers import LAYERS as ALLOWED
from tools.pictures import ARROWS, LAYERS, PLACE, WAY, pictures


def test_the_pictures_are_up_to_date() -> None:
    """`python -m tools.pictures` writes them anew."""
    assert {path.name: path.read_text(encoding="utf-8") for path in PLACE.iterdir()} == pictures()


def test_every_picture_is_well_formed() -> None:
    for text in pictures().values():
        assert ElementTree.fromstring(text).tag.endswith("svg")


def test_the_layers_are_those_of_the_import_rule() -> None:
    drawn = {name: int(number) for number, packages in LAYERS for name, _ in packages}
    assert {name: int(ALLOWED[name]) for name in drawn} == drawn


def test_the_arrows_are_the_changes_of_role_that_the_code_allows() -> None:
    allowed = {(a.name.title(), b.name.title()) for a, after in NEXT_ROLES.items() for b in after if a != b}
    assert set(ARROWS) == allowed


def test_the_way_of_a_record_names_events_and_actions_of_the_core() -> None:
    said = {text.partition(":")[0] for _, _, text in WAY}
    named = {text for text in said if text.isidentifier() and text[0].isupper()}
    assert {"RecordsSubmitted", "AppendToLog", "FlushLog", "Flushed"} <= named
    assert all(hasattr(actions, name) or hasattr(events, name) for name in named)
