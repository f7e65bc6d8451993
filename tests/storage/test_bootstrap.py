from __future__ import annotations

import io
import uuid
from pathlib import Path

import pytest

from kraftlib.errors import ConfigError
from kraftlib.records.batch import read_batches
from kraftlib.records.snapshot import SnapshotReader, StreamSource
from kraftlib.storage.bootstrap import (
    FEATURE_LEVELS,
    RELEASES,
    InitialController,
    feature_levels,
    first_voters,
    parse_initial_controllers,
    records_checkpoint,
    voters_checkpoint,
)
from kraftlib.types import Endpoint

DATA = Path(__file__).parent.parent / "data"
DIRECTORY_ID = uuid.UUID(bytes=bytes(range(16)))
GOLDEN = """
    0000000000000000 0000009a 00000000 02 224758fb 0020 00000002 0000018bcfe56800 0000018bcfe56800
    ffffffffffffffff ffff ffffffff 00000003
    2a 00 00 00 08 00000003 16 0000 0000018bcfe56800 00 00
    1e 00 00 02 08 00000005 0a 0000 0001 00 00
    8201 00 00 04 08 00000006 6e 0000 02 00000001 000102030405060708090a0b0c0d0e0f
      02 0b 434f4e54524f4c4c4552 0a 6c6f63616c686f7374 2385 00 0000 0001 00 00 00 00
    0000000000000003 0000003f 00000000 02 8f6608e6 0020 00000000 0000018bcfe56800 0000018bcfe56800
    ffffffffffffffff ffff ffffffff 00000001
    1a 00 00 00 08 00000004 06 0000 00 00
"""


def without_times(data: bytes) -> list[bytes]:
    """Return the batches with CRC and timestamps blanked: Kafka stamps each with its own time of writing."""
    batches = [bytearray(batch.data) for batch in read_batches(data)]
    for batch in batches:
        batch[17:21] = bytes(4)
        batch[27:43] = bytes(16)
    return [bytes(batch) for batch in batches]


def test_the_first_voters_are_written_as_kafka_writes_them() -> None:
    controllers = [InitialController(1, Endpoint("localhost", 9093), DIRECTORY_ID)]
    voters = first_voters(controllers, listener_name="controller")

    assert voters_checkpoint(voters, now_ms=1_700_000_000_000) == bytes.fromhex(GOLDEN)


def test_three_first_voters_are_those_of_a_captured_checkpoint() -> None:
    """As sets: Kafka writes them in the order of a hash."""
    captured = (DATA / "kafka-4.3.1/n1/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint").read_bytes()
    reader = SnapshotReader(StreamSource(io.BytesIO(captured)), epoch=0)
    assert reader.voters is not None
    controllers = [
        InitialController(
            voter.voter_id, Endpoint(voter.endpoints[0].host, voter.endpoints[0].port), voter.voter_directory_id
        )
        for voter in reader.voters.voters
    ]
    written = voters_checkpoint(first_voters(controllers, listener_name="CONTROLLER"), now_ms=0)

    again = SnapshotReader(StreamSource(io.BytesIO(written)), epoch=0)
    assert again.voters is not None
    assert sorted(again.voters.voters, key=lambda voter: voter.voter_id) == sorted(
        reader.voters.voters, key=lambda voter: voter.voter_id
    )
    assert (len(written), again.kraft_version) == (len(captured), reader.kraft_version)


def test_the_feature_levels_are_those_of_a_captured_checkpoint() -> None:
    captured = (DATA / "kafka-4.3.1/n1/bootstrap.checkpoint").read_bytes()

    assert without_times(records_checkpoint(now_ms=1_795_255_738_647)) == without_times(captured)


def test_levels_stand_in_the_order_of_their_names_behind_that_of_the_metadata() -> None:
    captured = (DATA / "kafka-3.9.2/n1/bootstrap.checkpoint").read_bytes()

    assert without_times(records_checkpoint(now_ms=0, levels={"metadata.version": 21})) == without_times(captured)
    levels = {"z": 1, "a": 1, "metadata.version": 21}
    assert records_checkpoint(now_ms=0, levels=levels) == records_checkpoint(
        now_ms=0, levels=dict(reversed(levels.items()))
    )


def test_initial_controllers_are_read() -> None:
    text = "1@127.0.0.1:9093:AAECAwQFBgcICQoLDA0ODw, 2@[::1]:9094:EBESExQVFhcYGRobHB0eHw"
    first, second = parse_initial_controllers(text)

    assert first == InitialController(1, Endpoint("127.0.0.1", 9093), DIRECTORY_ID)
    assert (second.id, second.endpoint) == (2, Endpoint("::1", 9094))
    assert f"{first}, {second}" == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the list is empty"),
        ("1@localhost:9093", "is no initial controller: expected id@host:port:directoryId"),
        ("1@localhost:AAECAwQFBgcICQoLDA0ODw", "is no endpoint"),
        ("1@localhost:9093:short", "is no initial controller"),
        ("1@a:1:AAECAwQFBgcICQoLDA0ODw,1@b:1:EBESExQVFhcYGRobHB0eHw", "a id stands there twice"),
        ("1@a:1:AAECAwQFBgcICQoLDA0ODw,2@b:1:AAECAwQFBgcICQoLDA0ODw", "a directory id stands there twice"),
    ],
)
def test_lists_that_cannot_be_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_initial_controllers(text)


def test_a_release_has_the_levels_with_which_kafka_formats() -> None:
    assert feature_levels("3.9.2") == feature_levels("3.9-IV0") == {"metadata.version": 21}
    assert feature_levels("4.3.1") == FEATURE_LEVELS
    assert [levels["metadata.version"] for levels in RELEASES.values()] == [21, 25, 27, 29, 30, 33]


@pytest.mark.parametrize("release", ["3.8", "4", "newest", "", "4.3x"])
def test_a_release_that_is_not_known_is_refused(release: str) -> None:
    with pytest.raises(ConfigError, match="release="):
        feature_levels(release)
