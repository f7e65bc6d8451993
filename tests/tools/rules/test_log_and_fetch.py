"""The rules of the log and of Fetch, shown a step that no core takes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kraftlib.config import RaftConfig
from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Download, Role
from kraftlib.records.batch import encode_batch
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.types import METADATA_TOPIC, ElectionState, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest
from kraftlib.wire.messages.vote import VoteResponse
from tests.consensus.build import (
    CLUSTER,
    LISTENER,
    fetch_request,
    fetch_response,
    log_view,
    outstanding_to,
    place,
    voter_set,
)
from tools.rules.elections import ElectionRules
from tools.rules.fetch_follower import FetchFollowerRules
from tools.rules.fetch_leader import FetchLeaderRules
from tools.rules.log import LogRules
from tools.rules.rule_set import RuleSet
from tools.rules.snapshots import SnapshotRules

Change = Callable[[list[Any]], list[Any]]


class Judged:
    """A replica, and rules that look on; what they are shown of its actions may be changed."""

    def __init__(
        self,
        kind: type[RuleSet],
        *epochs: int,
        voters: tuple[int, ...] = (1, 2, 3),
        leads: bool,
        kept: Download | None = None,
        **options: Any,
    ) -> None:
        election = None if leads else ElectionState(epoch=1, leader_id=2)
        self.core = Replica(
            RaftConfig(node_id=1, **options),
            key=ReplicaKey(1),
            cluster_id=CLUSTER,
            log=log_view(*epochs, voters=voter_set(*voters)),
            election=election,
            random=random.Random(7),
            endpoints={LISTENER: place(1)},
            kept=kept,
        )
        self.rules = kind(self.core)
        self.rules.started(self.core.start(0), 0)

    def hear(self, event: Any, change: Change = list, *, now_ms: int = 0) -> None:
        """Handle an event."""
        self.rules.hearing(event, now_ms)
        actions = self.core.handle(event, now_ms)
        self.rules.handled(event, change(actions), now_ms)

    def flushed(self, change: Change = list) -> None:
        """All is durable."""
        log = self.core.state.log
        self.hear(ev.Flushed(log.end_offset, log.log_version), change)


def without(kind: type) -> Change:
    return lambda actions: [action for action in actions if not isinstance(action, kind)]


def instead(kind: type, **fields: Any) -> Change:
    """The same actions, those of a kind with other fields."""
    return lambda actions: [
        attrs.evolve(action, **fields) if isinstance(action, kind) else action for action in actions
    ]


def more(action: Any) -> Change:
    return lambda actions: [*actions, action]


RECORDS = b"".join(bytes(encode_batch([b"x"], timestamp_ms=0, base_offset=offset, epoch=1).data) for offset in (0, 1))


@pytest.mark.parametrize(
    ("kind", "change", "rule"),
    [
        (LogRules, list, None),
        (LogRules, without(act.FlushLog), "RF3"),
        (LogRules, instead(act.FlushLog, log_version=7), "RF3"),
        (LogRules, without(act.AppendToLog), "RF3"),
        (FetchFollowerRules, list, None),
        (FetchFollowerRules, without(act.AppendToLog), "RF25"),
        (FetchFollowerRules, without(act.AdvanceHighWatermark), "RF27"),
        (FetchFollowerRules, more(act.TruncateLog(0)), "RF26"),
        (FetchFollowerRules, more(act.DropSnapshotDownload()), "RF37"),
    ],
)
def test_what_a_follower_does_with_records(kind: type[RuleSet], change: Change, rule: str | None) -> None:
    judged = Judged(kind, leads=False)
    response = fetch_response(epoch=1, leader_id=2, high_watermark=1, records=RECORDS)
    event = ev.ResponseReceived(outstanding_to(judged.core, 2).correlation_id, response)

    assert broken(lambda: judged.hear(event, change)) == rule


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (list, None),
        (instead(act.SendRequest, request=fetch_request(epoch=1, offset=1, last_epoch=1, replica_id=1)), "RF21"),
        (instead(act.SendRequest, request=fetch_request(epoch=1, offset=2, last_epoch=1, replica_id=3)), "RF22"),
    ],
)
def test_what_a_follower_asks_when_its_records_are_durable(change: Change, rule: str | None) -> None:
    judged = Judged(FetchFollowerRules, leads=False)
    response = fetch_response(epoch=1, leader_id=2, high_watermark=1, records=RECORDS)
    judged.hear(ev.ResponseReceived(outstanding_to(judged.core, 2).correlation_id, response))

    assert broken(lambda: judged.flushed(change)) == rule


@pytest.mark.parametrize(
    ("change", "rule"),
    [(list, None), (without(act.AdvanceHighWatermark), "RF15"), (more(act.AdvanceHighWatermark(2)), "RF15")],
)
def test_what_a_leader_commits(change: Change, rule: str | None) -> None:
    judged = Judged(FetchLeaderRules, voters=(1,), leads=True)

    assert broken(lambda: judged.flushed(change)) == rule


@pytest.mark.parametrize(
    ("offset", "last_epoch", "change", "rule"),
    [
        (0, 0, list, None),
        (0, 0, without(act.SendRecords), "RF10"),
        (0, 0, instead(act.SendRecords, start_offset=1), "RF13"),
        (5, 1, list, None),
        (5, 1, lambda actions: [act.SendRecords(77, actions[0].response, 1, 1)], "RF13"),
        (5, -1, without(act.SendResponse), "RF10"),
    ],
)
def test_what_a_leader_answers(offset: int, last_epoch: int, change: Change, rule: str | None) -> None:
    judged = Judged(FetchLeaderRules, voters=(1,), leads=True)
    request = fetch_request(epoch=judged.core.epoch, offset=offset, last_epoch=last_epoch)
    event = ev.RequestReceived(77, request, 18)

    assert broken(lambda: judged.hear(event, change)) == rule


@pytest.mark.parametrize(("change", "rule"), [(list, None), (without(act.SendResponse), "RF31")])
def test_what_is_said_of_a_snapshot_that_is_not_there(change: Change, rule: str | None) -> None:
    judged = Judged(SnapshotRules, leads=False)
    request = SnapshotHashRequest(cluster_id=CLUSTER, replica_id=2, end_offset=3, epoch=1, position=1)

    assert broken(lambda: judged.hear(ev.RequestReceived(77, request, 0), change)) == rule


def test_a_fetch_that_is_refused_without_an_answer_is_no_contact() -> None:
    judged = Judged(ElectionRules, leads=True, strict=True)
    core = judged.core
    now_ms = core.deadline_ms() or 0
    judged.hear(ev.TimeoutReached(), now_ms=now_ms)
    for _ in ("pre-vote", "vote"):
        granted = VoteResponse.PartitionData(leader_id=-1, leader_epoch=core.epoch, vote_granted=True)
        response = VoteResponse(topics=(VoteResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(granted,)),))
        judged.hear(ev.ResponseReceived(outstanding_to(core, 2).correlation_id, response), now_ms=now_ms)
    assert core.role is Role.LEADER

    request = fetch_request(epoch=core.epoch, offset=0, last_epoch=0, cluster_id=None)
    assert broken(lambda: judged.hear(ev.RequestReceived(77, request, 18), now_ms=now_ms + 1)) is None


def test_a_comparison_of_snapshots_is_given_up_before_a_fetch_timeout_that_is_due_with_it() -> None:
    snapshot_id = OffsetAndEpoch(offset=10, epoch=1)
    kept = Download(snapshot_id=snapshot_id, source_epoch=0, position=4, size=8)
    judged = Judged(FetchFollowerRules, leads=False, kept=kept)
    response = fetch_response(epoch=1, leader_id=2, snapshot=(snapshot_id.offset, snapshot_id.epoch))
    judged.hear(ev.ResponseReceived(outstanding_to(judged.core, 2).correlation_id, response))
    judged.hear(ev.DownloadHashed(snapshot_id, 4, b"hash"))
    assert isinstance(outstanding_to(judged.core, 2).request, SnapshotHashRequest)

    late_ms = judged.core.state.config.request_timeout_ms
    assert broken(lambda: judged.hear(ev.TimeoutReached(), now_ms=late_ms)) is None
    assert judged.core.role is Role.PROSPECTIVE


def broken(step: Callable[[], None]) -> str | None:
    """Return the rule that a step breaks."""
    try:
        step()
    except BrokenRuleError as error:
        return error.rule
    return None
