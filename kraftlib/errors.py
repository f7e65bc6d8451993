"""Every error of the library, in one tree, and what became of the record.

    KraftError                      everything a caller may catch
    ├── ConfigError (ValueError)    the caller asked for something impossible
    ├── NotLeaderError              nothing was appended; .leader says where to go, if known
    ├── BacklogFullError            nothing was appended; try again later
    │   └── DiskFullError           the disk of the leader is full
    ├── RecordTooLargeError         nothing was appended; it never will be
    ├── ClosedError                 nothing was appended; the client is shut down
    ├── RefusedError                nothing was changed: the machine, or a replica, refuses the command
    │   └── UnavailableError        nothing was changed: no leader took the command in time; try again later
    ├── HoldExpiredError            the log no longer waits for this reader: begin with the newest snapshot
    ├── OutcomeUnknownError         leadership was lost: committed or not, only the log can tell
    │   └── SessionEndedError       the session of the call is over, and with it its ephemeral keys and locks
    ├── FencedError                 nothing was changed: the lock of the fence is held with another token, or is free
    ├── TimedOutError (TimeoutError) the time is up; nothing was changed
    ├── TermLostError               the lock, or the leadership, may be another's: the body was cancelled
    ├── UnsupportedError            nothing was done: the leader, or the quorum's version, does not know it
    ├── ProtocolError               bytes or messages that the protocol forbids
    │   ├── LocalProtocolError      we were about to send them
    │   └── RemoteProtocolError     a remote replica sent them
    ├── StorageError                .path, .position
    │   ├── DirectoryInUseError     another process holds the lock
    │   ├── NotFormattedError       says how to format it
    │   ├── CorruptBatchError       checksum, length or offsets do not fit
    │   └── ElectionStateLostError  the vote is forgotten and could be cast twice
    └── ReplicaFailedError          the replica stopped itself; __cause__ says why
    InvariantError (AssertionError) our own bug; stops the replica before it can write or vote again

A class exists when a caller would act differently. Messages hold the values that disagree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from kraftlib.types import Endpoint, LeaderAndEpoch


class KraftError(Exception):
    """Everything that the library raises for a caller to catch."""


class ConfigError(KraftError, ValueError):
    """The caller asked for something impossible; the message names the value and the remedy."""


class NotLeaderError(KraftError):
    """This replica does not lead the epoch that was asked for. Nothing was appended.

    `leader` is the leader and epoch as known here; its `leader_id` is None while none is known. `endpoint` is where
    that leader listens for replicas, if known.
    """

    def __init__(self, message: str, *, leader: LeaderAndEpoch, endpoint: Endpoint | None = None) -> None:
        super().__init__(message)
        self.leader = leader
        self.endpoint = endpoint


class BacklogFullError(KraftError):
    """Too much is waiting to be written or committed. Nothing was appended; try again later."""


class DiskFullError(BacklogFullError):
    """The disk of the leader is full: nothing was appended. It is taken again by itself, once there is space."""


class RecordTooLargeError(KraftError, ValueError):
    """The records of one append do not fit into one batch. Nothing was appended; they never will."""


class ClosedError(KraftError):
    """The client is shut down, or shutting down. Nothing was appended."""


class HoldExpiredError(KraftError):
    """A retention hold kept too much and was given up: records that its reader has not read may be gone."""


class OutcomeUnknownError(KraftError):
    """Leadership was lost, or a deadline passed, with the records written but not known committed.

    Or a snapshot took their place before the state machine here had applied them: their results are not known.
    They may be committed or be gone: only the log can tell. `base_offset` and `epoch` say where to look.
    """

    def __init__(self, message: str, *, base_offset: int = -1, epoch: int = -1) -> None:
        super().__init__(message)
        self.base_offset = base_offset
        self.epoch = epoch


class RefusedError(KraftError):
    """Nothing was changed, and nothing will be: the command breaks a rule, or `UnavailableError`.

    The same command would be refused again.
    """


class UnavailableError(RefusedError):
    """Nothing was changed: no leader was found in time, or it has too much to do. The command is in order: try again.

    An HTTP front answers 503 to this one, and 400 to any other RefusedError.
    """


class SessionEndedError(OutcomeUnknownError):
    """The session of the call has expired or was closed: its ephemeral keys and its locks are gone. Open a new one.

    The call itself was not applied, unless an earlier attempt to send it was, before the session ended.
    """


class FencedError(KraftError):
    """The lock that the fence names is not held with its token any more. Nothing was changed."""


class TimedOutError(KraftError, TimeoutError):
    """The time is up, and what the caller waited for did not happen. Nothing was changed."""


class TermLostError(KraftError):
    """A term ended before its body did: its session was not renewed in time, or another bid has replaced it.

    The body was cancelled, and its later writes may have been refused by its fence.
    """


class UnsupportedError(KraftError):
    """The leader does not support the request, or the kraft.version of the quorum forbids it. Nothing was done."""


class ProtocolError(KraftError):
    """Bytes or messages that the protocol forbids."""


class LocalProtocolError(ProtocolError):
    """We were about to send what the protocol, or the chosen version of it, forbids."""


class RemoteProtocolError(ProtocolError):
    """A remote replica or client sent what the protocol forbids."""


class StorageError(KraftError):
    """The disk failed, or it holds wrong bytes. `path` and `position` name the place."""

    def __init__(
        self, message: str, *, path: os.PathLike[str] | str | None = None, position: int | None = None
    ) -> None:
        super().__init__(message)
        self.path = path
        self.position = position


class DirectoryInUseError(StorageError):
    """Another process holds the lock of the directory."""


class NotFormattedError(StorageError):
    """The directory was never formatted; the message says how to format it."""


class CorruptBatchError(StorageError):
    """Checksum, length, magic or offsets of a batch do not fit."""


class ElectionStateLostError(StorageError):
    """The only voter of a quorum has lost its election state: it must not vote, and no other voter can tell until when.

    Among several voters a replica starts all the same, and votes again once that is safe.
    """


class ReplicaFailedError(KraftError):
    """The replica stopped itself, because of its disk or a bug; `__cause__` says which.

    Records whose append was not acknowledged have an unknown outcome.
    """


class InvariantError(AssertionError):
    """Our own bug. The replica stops before it can write or vote again."""


def ensure(condition: object, message: str) -> None:
    """Raise InvariantError unless `condition` holds. Unlike `assert` it is never switched off."""
    if not condition:
        raise InvariantError(message)
