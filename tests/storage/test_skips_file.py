"""The note of what an operator has skipped: read back as it was, and never believed when it is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib import RaftConfig, blocking
from kraftlib.errors import StorageError
from kraftlib.plain_values import parse_voters
from kraftlib.storage import names
from kraftlib.storage.skips_file import Skip, read_skips, write_skips
from tests.storage.replicas import make_replica

SKIPS = [Skip(offset=3, epoch=1, reason="ticket 12", at_ms=5), Skip(offset=2**62, epoch=7, reason="ä", at_ms=6)]
VOTERS = "1@127.0.0.1:9001,2@127.0.0.1:9002,3@127.0.0.1:9003"


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_skips(tmp_path) == []
    write_skips(tmp_path, SKIPS)
    assert read_skips(tmp_path) == SKIPS


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [(b":3", b":4", "CRC does not fit"), (b"crc", b"crd", "no CRC"), (b'"version":1', b'"version":2', "CRC")],
)
def test_a_damaged_one_stops_the_start(tmp_path: Path, old: bytes, new: bytes, message: str) -> None:
    directory = make_replica(tmp_path / "1", 1, records=10, checkpoint=None)
    path = directory / names.PARTITION_DIRECTORY / names.SKIPS
    write_skips(path.parent, SKIPS)
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    with pytest.raises(StorageError, match=f"{names.SKIPS} cannot be used: .*{message}.*; remove it and run"):
        blocking.RaftClient(RaftConfig(node_id=1, directory=directory, voters=parse_voters(VOTERS))).start()
