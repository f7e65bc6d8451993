"""A snapshot file of etcd has the keys that etcd had. tests/interop/test_etcd.py asks a real one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kraftlib.compat.etcd.snapshot import Source, read_snapshot
from kraftlib.errors import ConfigError
from tests.compat.etcd.captured import DATABASE, SNAPSHOT, lasting


def read(data: bytes, tmp_path: Path, prefix: str = "") -> Source:
    path = tmp_path / "snapshot.db"
    path.write_bytes(data)
    return read_snapshot(path, prefix)


@pytest.mark.parametrize("data", [SNAPSHOT, DATABASE], ids=["saved", "copied"])
def test_keys_below_a_prefix_are_those_that_etcd_had(data: bytes, tmp_path: Path) -> None:
    source = read(data, tmp_path, "app/")
    assert source.entries == lasting(b"app/")
    assert source.entries["app/größe"] == b""
    assert (source.leased, source.size) == (1, sum(map(len, source.entries.values())))
    other = read(data, tmp_path, "other/")
    assert (other.entries, other.leased, other.revision) == (lasting(b"other/"), 0, source.revision)


def test_a_key_that_is_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the key b'raw/\\xff' is no text: import below a --path"):
        read(SNAPSHOT, tmp_path)


def test_a_file_that_is_damaged_or_none_of_etcd_is_refused(tmp_path: Path) -> None:
    flipped = bytearray(SNAPSHOT)
    flipped[20_000] ^= 1
    for data, words in (
        (bytes(flipped), "snapshot.db: the checksum at its end does not fit"),
        (b"", "snapshot.db: cannot mmap an empty file"),
        (b"text" * 4_000, "no database of bbolt"),
        (DATABASE.replace(b"\3key", b"\3kex").replace(b"key", b"kez"), "snapshot.db: "),
    ):
        with pytest.raises(ConfigError, match=words):
            read(data, tmp_path, "app/")
    with pytest.raises(ConfigError, match="nowhere"):
        read_snapshot(tmp_path / "nowhere")


def test_no_flipped_byte_of_a_record_leads_to_anything_but_keys_or_an_error(tmp_path: Path) -> None:
    dice, refused = random.Random(13), 0
    for _ in range(300):
        damaged = bytearray(DATABASE)
        damaged[dice.randrange(2 * 4_096, len(damaged))] = dice.randrange(256)
        try:
            read(bytes(damaged), tmp_path, "app/")
        except ConfigError:
            refused += 1
    assert refused > 10, "the records were hit"
