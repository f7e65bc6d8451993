"""Changes of the voter set, asked by an application on any replica: the leader is found, asked, and asked again.

    add_voter / remove_voter / upgrade_kraft_version -> leader (here or elsewhere) -> committed, or a definite error

An answer may be lost after the leader has written the change. Then the next answer tells: DUPLICATE_VOTER of a voter
that we asked to add, or VOTER_NOT_FOUND of one that we asked to remove, is success. Only where nobody answers again
within the time the outcome stays unknown, and that is said (reliability V6).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from kraftlib.consensus.events import Failure
from kraftlib.consensus.replica import Replica
from kraftlib.errors import ConfigError, KraftError, OutcomeUnknownError, UnsupportedError
from kraftlib.runtime.errands import Errands, FailedErrandError
from kraftlib.types import ZERO_UUID, Endpoint, ReplicaKey
from kraftlib.wire.apis import ErrorCode, error_name
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest

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
"""Answers after which it is worth asking again."""

TIMEOUT_MS: Final = 30_000
"""What a leader is told of how long the asker waits. Kafka's tools say 30 s, too, and no leader heeds it so far."""


@attrs.frozen(kw_only=True)
class VoterChangeRequest:
    """What is asked for, in words and as a message; `done` is the error that says that it is so already."""

    what: str
    message: Any
    done: ErrorCode | None = None


def addition(
    key: ReplicaKey, endpoints: Mapping[str, Endpoint], *, cluster_id: str | None, timeout_ms: int = TIMEOUT_MS
) -> VoterChangeRequest:
    """Make the observer `key` a voter, which is reached at `endpoints`. Raises: ConfigError."""
    _check_key(key)
    if not endpoints:
        raise ConfigError(f"voter {key} needs an endpoint")
    message = AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=timeout_ms,
        voter_id=key.id,
        voter_directory_id=key.directory_id or ZERO_UUID,
        listeners=tuple(
            AddRaftVoterRequest.Listener(name=name.upper(), host=place.host, port=place.port)
            for name, place in sorted(endpoints.items())
        ),
    )
    return VoterChangeRequest(what=f"adding voter {key}", message=message, done=ErrorCode.DUPLICATE_VOTER)


def removal(key: ReplicaKey, *, cluster_id: str | None) -> VoterChangeRequest:
    """Make the voter `key` an observer. Raises: ConfigError."""
    _check_key(key)
    message = RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=key.id, voter_directory_id=key.directory_id or ZERO_UUID
    )
    return VoterChangeRequest(what=f"removing voter {key}", message=message, done=ErrorCode.VOTER_NOT_FOUND)


def upgrade(version: int, *, timeout_ms: int = TIMEOUT_MS) -> VoterChangeRequest:
    """Raise kraft.version."""
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=KRAFT_VERSION, max_version_level=version)
    message = UpdateFeaturesRequest(timeout_ms=timeout_ms, feature_updates=(update,))
    return VoterChangeRequest(what=f"raising {KRAFT_VERSION} to {version}", message=message)


def _check_key(key: ReplicaKey) -> None:
    if key.id < 0 or key.directory_id in (None, ZERO_UUID):
        raise ConfigError(f"voter {key}: a voter is named by its id and the id of its directory (kraft.version 1)")


Ask = Callable[[Any], "asyncio.Future[Any] | None"]
"""Puts a question to the leader; None, while none is known. The answer may be FailedErrandError."""


async def change_voters(change: VoterChangeRequest, *, ask: Ask, timeout_ms: int) -> None:
    """See the change through.

    Raises: ConfigError, UnsupportedError, TimeoutError (nothing was changed), OutcomeUnknownError.
    """
    deadline = time.monotonic() + timeout_ms / 1_000
    in_doubt, reason = False, "no leader is known"
    while (left_s := deadline - time.monotonic()) > 0:
        question = ask(change.message)
        if question is not None:
            try:
                answer = await asyncio.wait_for(question, left_s)
            except FailedErrandError as error:
                if error.failure is Failure.UNSUPPORTED_VERSION:
                    raise UnsupportedError(f"{change.what}: the leader knows no such request") from None
                in_doubt, reason = True, f"the leader did not answer ({error})"
            except TimeoutError:
                in_doubt, reason = True, "the leader did not answer in time"
                break
            else:
                code, text = _outcome(answer)
                if code == ErrorCode.NONE or (in_doubt and code == change.done):
                    return
                if code not in LATER:
                    raise _refusal(change, code, text)
                # Whether a change that timed out was written, the leader does not say in a field of its own.
                in_doubt = in_doubt or code == ErrorCode.REQUEST_TIMED_OUT
                reason = text or error_name(code)
        await asyncio.sleep(min(PAUSE_S, max(0.0, deadline - time.monotonic())))
    message = f"{change.what} took more than {timeout_ms} ms: {reason}"
    if in_doubt:
        raise OutcomeUnknownError(f"{message}; ask for the status of the quorum: it may have been done")
    raise TimeoutError(f"{message}; nothing was changed")


def ask_leader(core: Replica, errands: Errands, message: Any) -> asyncio.Future[Any] | None:
    """Put the question to the leader as `core` knows it now, be it here or elsewhere."""
    leader_id = core.leader_and_epoch.leader_id
    if leader_id is None:
        return None
    if leader_id == core.key.id:
        return errands.ask_here(message)
    place = core.state.leader_endpoint
    return None if place is None else errands.ask(leader_id, place, message)


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
