"""Databases of bbolt: the newest whole state is read, and a damaged file ends in an error that says where."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kraftlib.compat.etcd.bbolt import Database
from kraftlib.errors import ConfigError
from tests.compat.etcd.captured import DATABASE

PAGE = 4_096
META_END = 16 + 56 + 8


def keys(data: bytes) -> list[bytes]:
    return [key for key, _ in Database(data, len(data)).bucket(b"key")]


def test_a_bucket_is_read_in_order_through_branches_and_pages_that_overflow() -> None:
    found = dict(Database(DATABASE, len(DATABASE)).bucket(b"key"))
    assert len(found) == 321
    assert list(found) == sorted(found)
    assert max(map(len, found.values())) > 2 * PAGE
    inline = dict(Database(DATABASE, len(DATABASE)).bucket(b"meta"))
    assert inline[b"storageVersion"] == b"3.6.0"


@pytest.mark.parametrize("place", [0, PAGE])
def test_one_of_two_meta_pages_is_enough(place: int) -> None:
    damaged = bytearray(DATABASE)
    damaged[place + 40] ^= 1
    assert set(keys(bytes(damaged))) <= set(keys(DATABASE))
    damaged[PAGE - place + META_END - 1] ^= 1
    with pytest.raises(ConfigError, match="neither of its two first pages is whole"):
        keys(bytes(damaged))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-PAGE], r"it is cut: \d+ bytes are less than 17 pages"),
        (lambda data: data[:64], "neither of its two first pages"),
        (lambda data: b"", "no database of bbolt"),
        (lambda data: data[: 2 * PAGE] + bytes(len(data) - 2 * PAGE), r"page \d+ is damaged: it calls itself 0"),
    ],
)
def test_what_is_cut_or_empty_is_named(change: Callable[[bytes], bytes], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        keys(change(DATABASE))
    with pytest.raises(ConfigError, match="no bucket b'nobody'"):
        list(Database(DATABASE, len(DATABASE)).bucket(b"nobody"))


def test_a_page_that_is_its_own_child_ends_in_an_error() -> None:
    """Every page is read once: a damaged file cannot hold the reader for ever."""
    pages = range(2 * PAGE, len(DATABASE), PAGE)
    looped = bytearray(DATABASE)
    for begin in [begin for begin in pages if DATABASE[begin + 8 : begin + 10] == b"\1\0"]:  # branches, old ones too
        looped[begin + 24 : begin + 32] = DATABASE[begin : begin + 8]
    with pytest.raises(ConfigError, match=r"page \d+ of 17 is damaged: it cannot stand where it is named"):
        keys(bytes(looped))


def test_no_flipped_byte_leads_to_anything_but_keys_or_an_error() -> None:
    dice = random.Random(11)
    for _ in range(600):
        damaged = bytearray(DATABASE)
        number = dice.choice((0, 1, *range(2, 17)))
        damaged[number * PAGE + dice.randrange(200)] = dice.randrange(256)
        try:
            keys(bytes(damaged))
        except ConfigError:
            continue
