"""Pictures of a map: each stays as it was, and costs what has changed since."""

from __future__ import annotations

import random

import pytest

from kraftlib.metadata.shared_map import BUCKETS, MapBuilder, SharedMap


def test_a_map_does_what_a_dictionary_does_and_no_picture_ever_changes() -> None:
    chance = random.Random(1)
    builder: MapBuilder[str, int] = MapBuilder()
    twin: dict[str, int] = {}
    pictures: list[tuple[SharedMap[str, int], dict[str, int]]] = []
    for number in range(3_000):
        key = str(chance.randrange(2 * BUCKETS))
        if chance.random() < 0.4:
            assert builder.pop(key, None) == twin.pop(key, None)
        else:
            builder[key] = twin[key] = number
        if number % 100 == 0:
            pictures.append((builder.freeze(), dict(twin)))
    for picture, then in pictures:
        assert (picture, len(picture)) == (then, len(then))
        assert {key: picture.get(key) for key in then} == then


def test_a_picture_shares_what_has_not_changed() -> None:
    builder: MapBuilder[int, object] = MapBuilder()
    for number in range(2 * BUCKETS):
        builder[number] = object()
    before = builder.freeze()
    builder[1] = "new"
    after = builder.freeze()
    shared = [old is new for old, new in zip(before._buckets, after._buckets, strict=True)]
    assert shared.count(False) == 1


def test_what_is_not_there_is_a_key_error() -> None:
    builder: MapBuilder[str, int] = MapBuilder()
    with pytest.raises(KeyError):
        del builder["a"]
    with pytest.raises(KeyError):
        _ = builder.freeze()["a"]
    assert repr(SharedMap()) == "SharedMap({})"
