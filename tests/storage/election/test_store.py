from __future__ import annotations

import errno
import json
import logging
import os
import re
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlib.errors import StorageError
from kraftlib.storage.election.line import election_of, parse_line
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.interface import QuorumStateStore
from kraftlib.storage.reserve import Reserve
from kraftlib.testing.log_contract import STORE_CHECKS
from kraftlib.types import ElectionState, ReplicaKey

DATA = Path(__file__).parents[2] / "data"
KAFKA = b'{"leaderId":2,"leaderEpoch":4,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
VOTE = ElectionState(epoch=5, voted_key=ReplicaKey(2, uuid.UUID(int=0x00010203_04050607_08090A0B_0C0D0E0F)))

LOST = ElectionState(amnesiac=True)


def store_in(directory: Path) -> FileQuorumStateStore:
    return FileQuorumStateStore(directory)


def write_votes(directory: Path, *states: ElectionState) -> None:
    store = store_in(directory)
    store.read()
    for state in states:
        store.write(state, kraft_version=1)
    store.close()


def damage(path: Path) -> None:
    """Flip a bit in place, so that the file stays the one that the mirror names."""
    found = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(check: Callable[[Callable[[], QuorumStateStore]], None], tmp_path: Path) -> None:
    check(lambda: store_in(tmp_path))


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("kafka-3.9.2/n1", ElectionState(epoch=5, leader_id=1)),
        ("kafka-4.3.1/n4", ElectionState(epoch=4, leader_id=2)),
        (
            "kafka-4.3.1/n1",
            ElectionState(
                epoch=4, leader_id=2, voted_key=ReplicaKey(2, uuid.UUID("1e8b8840-72fd-4e7f-bf67-fe31f8dededd"))
            ),
        ),
    ],
)
def test_what_kafka_wrote_is_read(directory: str, expected: ElectionState) -> None:
    store = FileQuorumStateStore(DATA / directory / "__cluster_metadata-0")

    assert store.read() == expected


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_what_is_owed_for_raised_epochs_is_kept(tmp_path: Path, kraft_version: int) -> None:
    """A restart is no way to have peers raise the epoch further; and who owes nothing has a file as before."""
    store = store_in(tmp_path)
    store.write(ElectionState(epoch=7, epoch_debt_ms=100_000_000_000), kraft_version=kraft_version)
    owing = store_in(tmp_path).read()
    assert owing is not None
    assert owing.epoch_debt_ms == 100_000_000_000
    store.write(ElectionState(epoch=7), kraft_version=kraft_version)
    assert b"epochDebtMs" not in (tmp_path / "quorum-state").read_bytes()


def test_the_voters_of_a_static_quorum_are_read_as_they_were_written(tmp_path: Path) -> None:
    """A later start compares its own list with them; a vote that comes in doubt does not forget them."""
    store = store_in(tmp_path)
    store.write(ElectionState(epoch=1), kraft_version=0, voters=[3, 1, 2])
    store.doubt()
    doubtful = store_in(tmp_path).read()
    assert doubtful is not None
    assert (doubtful.amnesiac, doubtful.static_voters) == (True, (1, 2, 3))

    store.write(ElectionState(epoch=2), kraft_version=1, voters=[1, 2, 3])
    dynamic = store.read()
    assert dynamic is not None
    assert dynamic.static_voters == ()


def test_the_voters_that_kafka_wrote_are_read() -> None:
    found = FileQuorumStateStore(DATA / "kafka-3.9.2/n1" / "__cluster_metadata-0").read()

    assert found is not None
    assert found.static_voters == (1, 2, 3)


def test_what_was_written_is_read_after_a_restart(tmp_path: Path) -> None:
    write_votes(tmp_path, ElectionState(epoch=1), VOTE)
    again = store_in(tmp_path)

    assert again.read() == VOTE
    again.write(ElectionState(epoch=6), kraft_version=1)
    assert json.loads((tmp_path / "quorum-state").read_bytes())["generation"] == 3


def test_files_belong_to_their_owner_alone(tmp_path: Path) -> None:
    write_votes(tmp_path, VOTE)

    assert {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {
        "quorum-state": 0o600,
        "quorum-state.bak": 0o600,
        "kraftlib.json": 0o600,
    }


# What is found at start: the table of the module --------------------------------------------------


def test_an_empty_directory_belongs_to_a_new_replica(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").touch()
    (tmp_path / "00000000000000000000-0000000000.checkpoint").write_bytes(b"the first voters")

    assert store_in(tmp_path).read() is None


@pytest.mark.parametrize(
    "name", ["00000000000000000000.log", "00000000000000000009-0000000001.checkpoint", "kraftlib.json"]
)
def test_a_missing_file_beside_signs_of_life_is_a_lost_vote(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / name).write_bytes(b"something")

    with caplog.at_level(logging.ERROR):
        assert store_in(tmp_path).read() == LOST
    assert re.search("quorum-state is missing, though a replica has run", caplog.text)


def test_the_mirror_does_not_stand_in_for_a_missing_file(tmp_path: Path) -> None:
    write_votes(tmp_path, VOTE)
    (tmp_path / "quorum-state").unlink()

    assert store_in(tmp_path).read() == LOST


def test_what_kafka_wrote_last_wins_over_the_mirror(tmp_path: Path) -> None:
    write_votes(tmp_path, VOTE)
    (tmp_path / "quorum-state").write_bytes(KAFKA)

    assert store_in(tmp_path).read() == ElectionState(epoch=4, leader_id=2)


def test_only_the_first_line_counts(tmp_path: Path) -> None:
    (tmp_path / "quorum-state").write_bytes(KAFKA + b"\nrubbish")

    assert store_in(tmp_path).read() == ElectionState(epoch=4, leader_id=2)


def test_the_mirror_of_the_damaged_file_stands_in_and_repairs_it(tmp_path: Path) -> None:
    write_votes(tmp_path, ElectionState(epoch=1), VOTE)
    damage(tmp_path / "quorum-state")

    assert store_in(tmp_path).read() == VOTE
    assert election_of(parse_line((tmp_path / "quorum-state").read_bytes())) == VOTE


def test_the_mirror_of_an_older_file_does_not_stand_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A crash between the rename and the mirror: the mirror holds the vote of the epoch before."""
    write_votes(tmp_path, ElectionState(epoch=4))
    older = (tmp_path / "quorum-state.bak").read_bytes()
    write_votes(tmp_path, VOTE)
    (tmp_path / "quorum-state.bak").write_bytes(older)
    damage(tmp_path / "quorum-state")

    with caplog.at_level(logging.ERROR):
        assert store_in(tmp_path).read() == LOST
    assert re.search(r"damaged \(its CRC does not fit\).*mirrors another file", caplog.text)


def test_a_file_from_before_its_mirror_is_a_lost_vote(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A write that the disk confirmed and lost: the old file is whole, and knows nothing of the vote."""
    store = FileQuorumStateStore(tmp_path)
    store.write(ElectionState(epoch=5), kraft_version=1)
    old = (tmp_path / "quorum-state").read_bytes()
    store.write(ElectionState(epoch=5, voted_key=VOTE.voted_key), kraft_version=1)
    (tmp_path / "quorum-state").write_bytes(old)

    store = FileQuorumStateStore(tmp_path)

    assert store.read() == ElectionState(epoch=0, amnesiac=True)
    assert "is number 1, and 2 was written" in caplog.text
    store.write(ElectionState(epoch=6), kraft_version=1)
    assert FileQuorumStateStore(tmp_path).read() == ElectionState(epoch=6)


def test_what_is_written_after_kafka_is_later_than_any_mirror(tmp_path: Path) -> None:
    """Kafka drops the number; to begin anew with 1 would look like a lost write, were the next mirror not written."""
    store = FileQuorumStateStore(tmp_path)
    for epoch in (1, 2, 3):
        store.write(ElectionState(epoch=epoch), kraft_version=1)
    mirror = (tmp_path / "quorum-state.bak").read_bytes()
    (tmp_path / "quorum-state").write_bytes(KAFKA)
    store = FileQuorumStateStore(tmp_path)
    store.read()
    store.write(ElectionState(epoch=9), kraft_version=1)
    (tmp_path / "quorum-state.bak").write_bytes(mirror)

    assert FileQuorumStateStore(tmp_path).read() == ElectionState(epoch=9)


def test_damage_to_both_is_a_lost_vote(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_votes(tmp_path, VOTE)
    damage(tmp_path / "quorum-state")
    damage(tmp_path / "quorum-state.bak")

    with caplog.at_level(logging.ERROR):
        assert store_in(tmp_path).read() == LOST
    assert re.search("CRC does not fit", caplog.text)


def test_an_election_older_than_the_log_is_a_lost_vote(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_votes(tmp_path, VOTE)

    assert FileQuorumStateStore(tmp_path, log_epoch=5).read() == VOTE
    with caplog.at_level(logging.ERROR):
        lost = FileQuorumStateStore(tmp_path, log_epoch=6).read()
    assert lost == ElectionState(epoch=6, amnesiac=True)
    assert re.search("says epoch 5, and the log has records of epoch 6", caplog.text)


@pytest.mark.parametrize("version", [2, 7])
def test_an_unknown_data_version_is_refused(version: int, tmp_path: Path) -> None:
    (tmp_path / "quorum-state").write_bytes(b'{"leaderEpoch":1,"somethingNew":[],"data_version":%d}' % version)

    with pytest.raises(StorageError, match=f"data version {version}, only 0 and 1") as caught:
        store_in(tmp_path).read()
    assert caught.value.path == tmp_path / "quorum-state"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 100,
        b"{",
        b"[]",
        b"{}",
        b"[" * 100_000,
        KAFKA.replace(b'"leaderId":2', b'"leaderId":"2"'),
        KAFKA.replace(b'"leaderEpoch":4', b'"leaderEpoch":-1'),
        KAFKA.replace(b'"leaderEpoch":4', b'"leaderEpoch":2147483648'),
        KAFKA.replace(b'"data_version":1', b'"data_version":true'),
        KAFKA.replace(b'"votedId":-1', b'"votedId":1').replace(b"AAAAAA", b"?"),
        KAFKA.replace(b"votedId", b"votedIt"),
        KAFKA.replace(b"{", b"{\n"),
    ],
)
def test_what_is_no_election_state_is_a_lost_vote(
    data: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "quorum-state").write_bytes(data)

    with caplog.at_level(logging.ERROR):
        assert store_in(tmp_path).read() == LOST
    assert re.search("damaged", caplog.text)


def test_a_link_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(KAFKA)
    (tmp_path / "quorum-state").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StorageError, match="quorum-state is a symbolic link"):
        store_in(tmp_path).read()


def test_a_full_disk_costs_no_vote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reserve is given back for it, and the write done again."""
    reserve = Reserve(tmp_path, size=1 << 20)
    reserve.restore()
    store = FileQuorumStateStore(tmp_path, reserve=reserve)
    pwrite = os.pwrite

    def full(descriptor: int, data: bytes, position: int) -> int:
        if (tmp_path / "kraftlib-reserve.bin").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", full)
    store.write(VOTE, kraft_version=1)

    assert store_in(tmp_path).read() == VOTE
    assert not (tmp_path / "kraftlib-reserve.bin").exists()
