"""Changes of the voter set on any replica: finds the leader, sends it the change, and retries.

    add_voter / remove_voter / upgrade_kraft_version -> leader (here or elsewhere) -> committed, or a definite error

A leader may have written the change without a response: the response is lost, or the leader has lost leadership. From
then on the request sender is in doubt: DUPLICATE_VOTER after a request to add, or VOTER_NOT_FOUND after a request to
remove, may result from its own earlier request. Neither proves it: the one compares ids and not directories, the other
is also the answer for the last voter. So the leader is asked for its voters, and the change succeeded only if they are
as requested. If that is still unknown when the time is up, the outcome is unknown (scenario V6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from kraftlib.consensus.events import Failure
from kraftlib.errors import ClosedError, ConfigError, KraftError, OutcomeUnknownError, TimedOutError, UnsupportedError
from kraftlib.frozen import define, immutable
from kraftlib.proposals.groups import TIMEOUT_MS_MAX
from kraftlib.runtime.own_requests import NoAnswerError, OwnRequests
from kraftlib.types import METADATA_TOPIC, ZERO_UUID, Endpoint, ReplicaKey
from kraftlib.wire.apis import ErrorCode, error_name
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest

if TYPE_CHECKING:  # `kraftlib quorum` has no replica, and starts a quarter sooner without the whole core
    from kraftlib.consensus.replica import Replica

PAUSE_S: Final = 0.05
"""Between two questions."""

KRAFT_VERSION: Final = "kraft.version"

LATER: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)
"""Answers after which the request is repeated."""

MAYBE_WRITTEN: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT}
)
"""Those of them that a leader may give after it has written the change; it has no field to tell.

It leads no more, or the change is not committed in time.
"""

LOOK: Final = "ask for the status of the quorum: it may have been done"

VOTERS_PLEASE: Final = DescribeQuorumRequest(
    topics=(
        DescribeQuorumRequest.TopicData(
            topic_name=METADATA_TOPIC, partitions=(DescribeQuorumRequest.PartitionData(partition_index=0),)
        ),
    )
)

TIMEOUT_MS: Final = 30_000
"""The timeout in the request to the leader. Kafka's tools say 30 s, too, and no leader heeds it so far."""


@immutable(kw_only=True)
class VoterChangeRequest:
    """A change of the voters, in words and as a message; `done` is the error that says that `key` has it already."""

    what: str
    message: Any
    done: ErrorCode | None = None
    key: ReplicaKey | None = None

    def is_done(self, voters: Collection[ReplicaKey]) -> bool:
        """Whether `voters` are as asked: this very disk is among them, or is not."""
        return (self.key in voters) is (self.done is ErrorCode.DUPLICATE_VOTER)

    def is_impossible(self, voters: Collection[ReplicaKey]) -> bool:
        """Whether `voters` bear out `done` though it is not done: the number votes with another disk, or alone."""
        if self.done is ErrorCode.DUPLICATE_VOTER:
            return any(self.key is not None and voter.id == self.key.id for voter in voters)
        return len(voters) == 1


def addition(
    key: ReplicaKey, endpoints: Mapping[str, Endpoint], *, cluster_id: str | None, timeout_ms: int = TIMEOUT_MS
) -> VoterChangeRequest:
    """Make the observer `key` a voter, which is reached at `endpoints`. Raises: ConfigError."""
    _check_key(key)
    if not endpoints:
        raise ConfigError(f"voter {key} needs an endpoint")
    message = AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=min(timeout_ms, TIMEOUT_MS_MAX),
        voter_id=key.id,
        voter_directory_id=key.directory_id or ZERO_UUID,
        listeners=tuple(
            AddRaftVoterRequest.Listener(name=name.upper(), host=place.host, port=place.port)
            for name, place in sorted(endpoints.items())
        ),
    )
    return VoterChangeRequest(what=f"adding voter {key}", message=message, done=ErrorCode.DUPLICATE_VOTER, key=key)


def removal(key: ReplicaKey, *, cluster_id: str | None) -> VoterChangeRequest:
    """Make the voter `key` an observer. Raises: ConfigError."""
    _check_key(key)
    message = RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=key.id, voter_directory_id=key.directory_id or ZERO_UUID
    )
    return VoterChangeRequest(what=f"removing voter {key}", message=message, done=ErrorCode.VOTER_NOT_FOUND, key=key)


def upgrade(version: int, *, timeout_ms: int = TIMEOUT_MS) -> VoterChangeRequest:
    """Raise kraft.version."""
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=KRAFT_VERSION, max_version_level=version)
    message = UpdateFeaturesRequest(timeout_ms=min(timeout_ms, TIMEOUT_MS_MAX), feature_updates=(update,))
    return VoterChangeRequest(what=f"raising {KRAFT_VERSION} to {version}", message=message)


def _check_key(key: ReplicaKey) -> None:
    if key.id < 0 or key.directory_id in (None, ZERO_UUID):
        raise ConfigError(f"voter {key}: a voter is named by its id and the id of its directory (kraft.version 1)")


Ask = Callable[[Any], "asyncio.Future[Any] | None"]
"""Puts a question to the leader; None, while none is known. The answer may be NoAnswerError."""


@define
class _Known:
    """The knowledge of the request sender so far; in doubt, a leader may have written the change."""

    in_doubt: bool = False
    reason: str = "no leader is known"


async def change_voters(change: VoterChangeRequest, *, ask: Ask, timeout_ms: int) -> None:
    """See the change through.

    Raises: ConfigError, UnsupportedError, TimedOutError (nothing was changed), OutcomeUnknownError.
    """
    known = _Known()
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            await _ask_until_done(change, ask, known)
    except TimeoutError:
        message = f"{change.what} took more than {timeout_ms} ms: {known.reason}"
        if known.in_doubt:
            raise OutcomeUnknownError(f"{message}; {LOOK}") from None
        raise TimedOutError(f"{message}; nothing was changed") from None
    except (ClosedError, asyncio.CancelledError) as error:
        # It is cancelled when the client ends, or its caller no longer waits.
        if not known.in_doubt:
            raise
        raise OutcomeUnknownError(f"{change.what}: {error or 'this client ended'} meanwhile; {LOOK}") from error


async def _ask_until_done(change: VoterChangeRequest, ask: Ask, known: _Known) -> None:
    while True:
        question = ask(change.message)
        if question is not None and await _is_done(change, question, ask, known):
            return
        await asyncio.sleep(PAUSE_S)


async def _is_done(change: VoterChangeRequest, question: asyncio.Future[Any], ask: Ask, known: _Known) -> bool:
    """Await the answer to `question`. Raises: ConfigError, UnsupportedError, if a retry cannot help."""
    # A question that has left leaves doubt, until its answer takes that away again.
    was_in_doubt, known.in_doubt = known.in_doubt, True
    known.reason = "the leader did not answer in time"
    try:
        code, text = _outcome(await question)
    except NoAnswerError as error:
        if error.failure is Failure.UNSUPPORTED_VERSION and not was_in_doubt:
            raise UnsupportedError(f"{change.what}: the leader knows no such request") from None
        known.in_doubt = was_in_doubt or error.may_have_arrived
        known.reason = f"the leader did not answer ({error})"
        return False
    known.in_doubt, known.reason = was_in_doubt or code in MAYBE_WRITTEN, text or error_name(code)
    if code == ErrorCode.NONE:
        return True
    if code in LATER:
        return False
    if was_in_doubt and code == change.done:
        # A replica that answers this has committed the voters that it names.
        voters = await _voters(ask)
        if voters and change.is_done(voters):
            return True
        if not change.is_impossible(voters):  # they are not known, or others since
            return False
    raise _refusal(change, code, text)


async def _voters(ask: Ask) -> frozenset[ReplicaKey]:
    """Return the voters as the leader knows them; none, if it does not say, or not on which disks they are."""
    question = ask(VOTERS_PLEASE)
    if question is None:
        return frozenset()
    try:
        answer: DescribeQuorumResponse = await question
    except NoAnswerError:
        return frozenset()
    rows = [row for topic in answer.topics for partition in topic.partitions for row in partition.current_voters]
    voters = frozenset(ReplicaKey(row.replica_id, row.replica_directory_id) for row in rows)
    return frozenset() if any(voter.directory_id == ZERO_UUID for voter in voters) else voters


def ask_leader(core: Replica, own: OwnRequests, message: Any) -> asyncio.Future[Any] | None:
    """Put the question to the leader as `core` knows it now, be it here or elsewhere."""
    leader_id = core.leader_and_epoch.leader_id
    if leader_id is None:
        return None
    if leader_id == core.key.id:
        return own.ask_here(message)
    place = core.state.leader_endpoint
    return None if place is None else own.ask(leader_id, place, message)


def _outcome(answer: Any) -> tuple[int, str | None]:
    """Read error and words of an answer; UpdateFeatures below version 2 has them by feature."""
    rows = [row for row in getattr(answer, "results", ()) if row.error_code]
    worst = rows[0] if rows and not answer.error_code else answer
    return worst.error_code, worst.error_message


def _refusal(change: VoterChangeRequest, code: int, text: str | None) -> KraftError:
    words = f"{change.what} was refused: {text or error_name(code)} ({error_name(code)})"
    if code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_UPDATE_VERSION):
        return UnsupportedError(words)
    return ConfigError(words)
