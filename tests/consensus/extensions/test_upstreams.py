"""An observer with upstreams: whom it asks, what it takes, and whom it leaves (decision 0021)."""

from __future__ import annotations

import struct
from typing import Any

import attrs
import pytest

from kraftlib.config import RaftConfig
from kraftlib.consensus.actions import AppendToLog, HashDownload, SendRequest, TruncateLog
from kraftlib.consensus.events import (
    ConnectionLost,
    DownloadHashed,
    Failure,
    RequestFailed,
    SnapshotChunkWritten,
    StorageFailed,
    TimeoutReached,
)
from kraftlib.consensus.extensions.upstreams import AGE_TAG, MARK
from kraftlib.consensus.outstanding import FIRST_UPSTREAM
from kraftlib.consensus.replica import Replica
from kraftlib.errors import ConfigError
from kraftlib.types import Endpoint, OffsetRange
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest, SnapshotHashResponse
from tests.consensus.build import (
    SNAPSHOT,
    batch,
    begin_request,
    commits,
    fetch_response,
    flush,
    follower,
    outstanding_to,
    partition_of,
    pending_requests,
    place,
    replica,
    reply,
    requests,
    snapshot_chunk,
    tell,
)

FIRST, SECOND = FIRST_UPSTREAM, FIRST_UPSTREAM - 1
TIMEOUT_MS = 2_000


def observer(*epochs: int, **more: Any) -> Replica:
    """An observer that follows 2 in epoch 5 and has asked its first upstream of two."""
    core = follower(*epochs, own_id=9, epoch=5, leader_id=2, **{"upstreams": (place(7), place(8)), **more})
    assert core.state.upstreams.chosen == FIRST
    return core


def aged(age_ms: int, **more: Any) -> Any:
    """An answer of an upstream whose news is so old."""
    response = fetch_response(**{"epoch": 5, "leader_id": 2, **more})
    return attrs.evolve(response, unknown_tagged_fields=((AGE_TAG, struct.pack(">i", age_ms)),))


def asked(core: Replica) -> list[tuple[int, bool]]:
    """Whom the core has asked for records, and whether it has marked that."""
    fetches = [one for one in pending_requests(core) if isinstance(one.request, FetchRequest) and one.question]
    return [(one.destination, one.request.unknown_tagged_fields == MARK) for one in fetches]


def test_it_asks_its_first_upstream_by_a_marked_fetch() -> None:
    core = observer(1)
    request = outstanding_to(core, FIRST)

    assert asked(core) == [(FIRST, True)]
    assert request.endpoint == place(7)
    assert request.request.replica_state.replica_id == 9
    assert partition_of(request.request).fetch_offset == 1


def test_it_takes_committed_records_of_an_upstream_and_what_is_committed() -> None:
    core = observer(1)
    records = batch(1, 5).data + batch(2, 5).data
    actions = reply(core, FIRST, aged(10, records=records, high_watermark=2))

    assert [one.batches for one in actions if isinstance(one, AppendToLog)] == [(batch(1, 5),)]
    assert commits(actions) == [2]
    flush(core)
    assert asked(core) == [(FIRST, True)]


def test_it_drops_what_is_not_committed_also_of_the_leader() -> None:
    """So its log never has to be truncated."""
    core = observer(1)
    for destination in (FIRST, SECOND):
        core.handle(ConnectionLost(destination, refused=True), 0)
    assert asked(core)[-1] == (2, False)
    actions = reply(core, 2, fetch_response(epoch=5, leader_id=2, records=batch(1, 5).data, high_watermark=1))

    assert not [one for one in actions if isinstance(one, AppendToLog)]
    assert core.state.connections.failures(2) == 0, "the leader is not to blame for it"
    assert core.state.log.end_offset == 1


@pytest.mark.parametrize("way", ["failed", "refused", "lost", "late", "stopping", "another topic"])
def test_an_upstream_that_does_not_serve_is_left_for_the_next_one_and_then_for_the_leader(way: str) -> None:
    core = observer(1)
    for destination, after in ((FIRST, SECOND), (SECOND, 2)):
        now_ms = core.state.now_ms
        correlation_id = outstanding_to(core, destination).correlation_id
        match way:
            case "failed":
                core.handle(RequestFailed(correlation_id, Failure.DISCONNECTED), now_ms)
            case "refused":
                reply(core, destination, fetch_response(epoch=5, leader_id=2, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
            case "lost":
                core.handle(ConnectionLost(destination, refused=False), now_ms)
            case "late":
                core.handle(TimeoutReached(), now_ms + core.state.config.request_timeout_ms)
            case "stopping":
                reply(core, destination, fetch_response(epoch=5, leader_id=2, error=ErrorCode.BROKER_NOT_AVAILABLE))
            case _:
                reply(core, destination, attrs.evolve(fetch_response(epoch=5, leader_id=2), responses=()))
        assert asked(core)[-1] == (after, after != 2)
    assert core.state.refused["upstream left"] == 2


def test_an_upstream_rests_ever_longer_until_it_is_of_use_and_is_then_preferred_again() -> None:
    core = observer(1)
    rests = []
    for _ in range(3):
        core.handle(ConnectionLost(FIRST, refused=True), core.state.now_ms)
        until_ms = core.state.upstreams.resting_until_ms[FIRST]
        rests.append((until_ms - core.state.now_ms) // TIMEOUT_MS)
        assert core.state.upstreams.chosen == SECOND
        core.state.connections.forget()
        core.handle(TimeoutReached(), until_ms)
        assert core.state.upstreams.chosen == FIRST
    assert [rest in range(1 << count, 2 << count) for count, rest in enumerate(rests)] == [True] * 3

    reply(core, FIRST, aged(0, high_watermark=1))
    core.handle(ConnectionLost(FIRST, refused=True), core.state.now_ms)
    assert core.state.upstreams.resting_until_ms[FIRST] < core.state.now_ms + 2 * TIMEOUT_MS


def test_an_upstream_without_news_for_a_fetch_timeout_is_left() -> None:
    """It is cut off, behind, or in a circle of upstreams that hear of the leader from each other alone."""
    core = observer(1)
    for now_ms in range(0, TIMEOUT_MS, 500):
        reply(core, FIRST, aged(now_ms + 100, high_watermark=1), now_ms=now_ms)
        core.handle(TimeoutReached(), now_ms + 400)  # after the pause that an answer without news asks for
        assert core.state.upstreams.chosen == FIRST, "it has its whole time"
    reply(core, FIRST, aged(TIMEOUT_MS + 100, high_watermark=1), now_ms=TIMEOUT_MS)

    assert core.state.upstreams.chosen == SECOND


def test_what_it_tells_of_its_own_news_is_as_old_as_what_it_was_told() -> None:
    core = observer(1)
    reply(core, FIRST, aged(300, high_watermark=1), now_ms=1_000)
    assert core.state.upstreams.current_ms == 700

    core.handle(TimeoutReached(), 1_500)
    reply(core, FIRST, aged(100, high_watermark=9), now_ms=1_500)
    assert core.state.upstreams.current_ms == 700, "it lacks what is committed"

    core.handle(TimeoutReached(), 2_000)
    reply(core, FIRST, aged(1_500, high_watermark=1), now_ms=2_000)
    assert core.state.upstreams.heard_ms == 1_400
    assert core.state.upstreams.current_ms == 700, "it has everything of 500 ms, and may lack what came until 1,400"


def test_an_upstream_names_a_newer_epoch() -> None:
    core = observer(1)
    reply(core, FIRST, fetch_response(epoch=6, leader_id=3, error=ErrorCode.FENCED_LEADER_EPOCH))

    assert (core.epoch, core.leader_and_epoch.leader_id) == (6, 3)
    assert asked(core) == [(FIRST, True)]
    assert core.state.refused == {}


def test_without_a_leader_it_asks_its_upstreams_who_leads_and_else_the_voters() -> None:
    core = observer(1)
    reply(core, FIRST, fetch_response(epoch=6, leader_id=-1, error=ErrorCode.FENCED_LEADER_EPOCH))
    (first,) = pending_requests(core)
    assert first.destination in (FIRST, SECOND)
    assert first.request.replica_state.replica_id == -1
    assert first.request.unknown_tagged_fields != MARK
    answer = fetch_response(epoch=6, leader_id=-1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    reply(core, first.destination, answer)
    (second,) = pending_requests(core)
    assert {first.destination, second.destination} == {FIRST, SECOND}
    reply(core, second.destination, answer)

    assert pending_requests(core)[0].destination in (1, 2, 3)
    assert core.state.refused == {}, "no upstream is left for that"


def test_it_fetches_from_the_leader_once_that_takes_it_for_a_voter() -> None:
    """The record that makes it one may need its own acknowledgement, and an upstream never sends it."""
    core = observer(1)
    core.state.connections.forget()
    tell(core, begin_request(epoch=5, voter_id=9))
    assert asked(core) == [(2, False)]
    actions = reply(core, 2, fetch_response(epoch=5, leader_id=2, records=batch(1, 5).data, high_watermark=1))

    assert [one.batches for one in actions if isinstance(one, AppendToLog)] == [(batch(1, 5),)]
    flush(core)
    core.state.connections.forget()
    core.handle(TimeoutReached(), 2 * TIMEOUT_MS)
    assert asked(core) == [(FIRST, True)]


def test_one_that_has_lost_records_fetches_them_from_the_leader() -> None:
    core = observer(1, 1)
    core.state.connections.forget()
    core.handle(StorageFailed((OffsetRange(0, 1),)), 0)

    assert asked(core) == [(2, False)]


def test_a_log_that_diverges_is_truncated_by_the_leader_alone() -> None:
    """It may be from a time without upstreams. An upstream refuses it, and so does the next."""
    core = observer(1, 4)
    for destination in (FIRST, SECOND):
        reply(core, destination, fetch_response(epoch=5, leader_id=2, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    actions = reply(core, 2, fetch_response(epoch=5, leader_id=2, diverging=(1, 1)))

    assert TruncateLog(1) in actions


def downloading() -> Replica:
    """One that has 4 of 8 bytes of a snapshot of its first upstream."""
    core = observer(1)
    reply(core, FIRST, aged(0, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch)))
    asks = outstanding_to(core, FIRST).request
    assert isinstance(asks, FetchSnapshotRequest)
    assert asks.unknown_tagged_fields == MARK
    reply(core, FIRST, snapshot_chunk(b"1234"))
    core.handle(SnapshotChunkWritten(SNAPSHOT, 4), 0)
    return core


def test_a_snapshot_is_fetched_from_the_upstream_that_has_named_it() -> None:
    core = downloading()

    assert partition_of(outstanding_to(core, FIRST).request).position == 4
    assert core.state.kept is not None
    assert core.state.kept.source == FIRST


@pytest.mark.parametrize(
    "answer",
    [
        FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID),
        FetchSnapshotResponse(topics=(attrs.evolve(snapshot_chunk(b"5678", position=4).topics[0], name="another"),)),
        FetchSnapshotResponse(topics=()),
        snapshot_chunk(b"", error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
    ids=["another cluster", "another topic", "nothing", "refused"],
)
def test_an_upstream_that_does_not_send_its_snapshot_is_left(answer: FetchSnapshotResponse) -> None:
    core = downloading()
    reply(core, FIRST, answer)
    core.handle(TimeoutReached(), core.state.now_ms)

    assert asked(core)[-1] == (SECOND, True)


def test_bytes_of_one_upstream_go_on_with_another_only_once_they_have_proved_to_be_the_same() -> None:
    core = downloading()
    core.handle(ConnectionLost(FIRST, refused=True), 0)
    assert asked(core)[-1] == (SECOND, True), "it asks what snapshot there is"
    reply(core, SECOND, aged(0, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch)))

    assert core.state.kept is not None
    assert core.state.kept.unproven
    assert not [one for one in pending_requests(core) if isinstance(one.request, FetchSnapshotRequest)][1:]


def test_bytes_of_an_upstream_that_was_left_are_proved_also_to_itself() -> None:
    """Another process may answer there now, which has the snapshot of another replica."""
    core = downloading()
    core.handle(ConnectionLost(FIRST, refused=True), 0)
    core.state.connections.forget()
    core.handle(TimeoutReached(), core.state.upstreams.resting_until_ms[FIRST])
    actions = reply(core, FIRST, aged(0, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch)))

    assert core.state.kept is not None
    assert core.state.kept.unproven
    assert not requests(actions, FetchSnapshotRequest)
    core.state.kept.digest = b"hash"
    sent = core.handle(TimeoutReached(), core.state.now_ms)
    assert [one.destination for one in sent if isinstance(one, SendRequest)] == [FIRST]
    assert requests(sent, SnapshotHashRequest)


def test_bytes_of_an_upstream_are_doubted_though_another_one_was_being_asked_when_it_was_lost() -> None:
    core = downloading()
    core.state.upstreams.chosen = SECOND
    core.handle(ConnectionLost(FIRST, refused=False), 0)

    assert core.state.kept is not None
    assert core.state.kept.source_epoch is None


NAMED = aged(0, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch))


def with_bytes_of_the_leader() -> Replica:
    """One that has 4 of 8 bytes of a snapshot of the leader, and has asked it for more."""
    core = observer(1, upstreams=(place(7),), request_timeout_ms=20_000)
    core.handle(ConnectionLost(FIRST, refused=True), 0)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch)))
    reply(core, 2, snapshot_chunk(b"1234"))
    core.handle(SnapshotChunkWritten(SNAPSHOT, 4), 0)
    return core


def changes_source(core: Replica) -> None:
    """Its upstream may be asked again, and names the same snapshot."""
    core.handle(TimeoutReached(), core.state.upstreams.resting_until_ms[FIRST])
    assert HashDownload(SNAPSHOT, 4) in reply(core, FIRST, NAMED)


def test_a_late_chunk_of_the_last_source_is_not_written() -> None:
    core = with_bytes_of_the_leader()
    changes_source(core)
    assert reply(core, 2, snapshot_chunk(b"5678", position=4)) == []
    actions = core.handle(DownloadHashed(SNAPSHOT, 4, b"hash"), core.state.now_ms)

    (question,) = requests(actions, SnapshotHashRequest)
    assert question.destination == FIRST, "it is to prove that it has the same bytes"


@pytest.mark.parametrize(
    "late",
    [
        FetchSnapshotResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR),
        snapshot_chunk(b"", error=ErrorCode.SNAPSHOT_NOT_FOUND),
    ],
    ids=["unknown error", "not found"],
)
def test_a_late_error_of_the_last_source_does_not_end_the_download(late: FetchSnapshotResponse) -> None:
    core = with_bytes_of_the_leader()
    changes_source(core)

    assert reply(core, 2, late) == []
    assert requests(core.handle(DownloadHashed(SNAPSHOT, 4, b"hash"), core.state.now_ms), SnapshotHashRequest)


def test_a_late_hash_of_the_last_source_proves_nothing() -> None:
    core = with_bytes_of_the_leader()
    changes_source(core)
    reply(core, 2, snapshot_chunk(b"5678", position=4))
    assert requests(core.handle(DownloadHashed(SNAPSHOT, 4, b"hash"), core.state.now_ms), SnapshotHashRequest)
    core.handle(ConnectionLost(FIRST, refused=False), core.state.now_ms)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch)))
    core.handle(DownloadHashed(SNAPSHOT, 4, b"hash"), core.state.now_ms)
    same = SnapshotHashResponse(size=8, digest=b"hash")

    assert reply(core, FIRST, same) == []
    (chunk,) = requests(reply(core, 2, same), FetchSnapshotRequest)
    assert chunk.destination == 2


def test_the_leader_is_heard_as_the_source_of_its_own_news() -> None:
    core = replica(1, own_id=9)
    tell(core, begin_request(epoch=5))
    reply(core, 2, fetch_response(epoch=5, leader_id=2, high_watermark=1), now_ms=70)

    assert core.state.upstreams.current_ms == 70


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"node_id": 2, "voters": "2@localhost:1"}, "voters fetch from the leader"),
        ({"auto_join": True}, "auto_join"),
        ({"private_apis": False}, "private_apis"),
        ({"upstreams": "localhost:9007,localhost:9007"}, "once only"),
        ({"listen": "localhost:9007"}, "address of replica 9 itself"),
        ({"advertised": "localhost:9007"}, "address of replica 9 itself"),
    ],
)
def test_upstreams_that_make_no_sense_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        RaftConfig(**{"node_id": 9, "upstreams": "localhost:9007", **settings})


def test_upstreams_are_addresses_as_a_file_has_them() -> None:
    config = RaftConfig(node_id=9, upstreams="a:1,b:2")  # type: ignore[arg-type]

    assert config.upstreams == (Endpoint("a", 1), Endpoint("b", 2))
