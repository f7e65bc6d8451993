"""The audit log: who changed voters, features or the leadership by request, and who was refused what.

Each event is one JSON object on a line of its own, with these keys in this order:

    time         UTC, as in 2026-03-01T12:30:00.125Z
    node_id      the replica that writes the line
    cluster_id   its cluster, or null
    event        `answered` (a peer's request was carried out, or not), `refused` (it was not allowed), `requested` (the
                 application of this replica has asked for a change), `finished` (what became of that) or `left_out`
    principals   the names of the peer, or an empty list; `["application"]` for the application of this replica
    address      the address of the peer, or `local`
    request      the name of the request, such as `RemoveRaftVoterRequest`
    subject      what it is about, such as `voter 3:fV0tKZb0Q1mUv3rBv0h3kQ at CONTROLLER=10.0.0.3:9093`
    outcome      `NONE` if it was done, else the error or the reason of the refusal

Texts are ASCII with escapes and at most 256 characters, so that no peer can forge a line. Lines go to the logger
"kraftlib.audit" at INFO and are appended to `[access] audit_file`, if that is set. The file is opened for each line: a
file that was renamed is left alone, and a new one is begun.

No peer can fill a disk with them. Refusals are written as often as they are logged (`kraftlib.runtime.net.notices`). A
request that fails again in the same way within a minute has no second line, and answers have at most `ANSWERS_MAX`
lines a minute. A line with the event `left_out` then says how many there were.
"""

from __future__ import annotations

import datetime
import errno
import json
import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.errors import ConfigError
from kraftlib.types import ZERO_UUID, Endpoint, ReplicaId, uuid_text
from kraftlib.wire.apis import ApiKey, ErrorCode, PrivateApiKey, error_name

logger = logging.getLogger("kraftlib.audit")

KEYS: Final = ("time", "node_id", "cluster_id", "event", "principals", "address", "request", "subject", "outcome")
"""The keys of a line, in order."""

TEXT_MAX: Final = 256
PRINCIPALS_MAX: Final = 8
FILE_MODE: Final = 0o600

AUDITED: Final = frozenset(
    {
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.UPDATE_FEATURES,
        PrivateApiKey.ELECTION_PRIORITY,
    }
)
"""Requests whose answers are audited: they change voters, features, or who leads."""

ANSWERS_MAX: Final = 240
"""Lines of answers in one minute."""

MINUTE_S: Final = 60.0

APPLICATION: Final = ("application",)
LOCAL: Final = "local"


@attrs.define(kw_only=True, eq=False)
class AuditLog:
    """Writes the lines of one replica. `path` None: to the logger only. `clock` is in seconds."""

    node_id: ReplicaId
    cluster_id: str | None = None
    path: Path | None = None
    clock: Callable[[], float] = time.monotonic
    _has_failed: bool = attrs.field(default=False, init=False)
    _minute_began: float = attrs.field(default=0.0, init=False)
    _answers: int = attrs.field(default=0, init=False)
    _left_out: int = attrs.field(default=0, init=False)
    _failures: set[tuple[Any, ...]] = attrs.field(factory=set, init=False)

    def check(self) -> None:
        """Open the file once. Raises: ConfigError, if it cannot be written."""
        if self.path is None:
            return
        try:
            self._append(self.path, b"")
        except OSError as error:
            raise ConfigError(
                f"audit_file={str(self.path)!r} cannot be written: {error.strerror or error}; name a file in a "
                "directory of this user, and no symbolic link"
            ) from error

    def write(
        self, event: str, *, principals: Iterable[str], address: str, request: str, subject: str, outcome: str
    ) -> None:
        """Write one line. A file that cannot be written is reported to the log, and stops nobody."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        cluster = None if self.cluster_id is None else _short(self.cluster_id)
        names = [_short(name) for name in principals][:PRINCIPALS_MAX]
        texts = map(_short, (address, request, subject, outcome))
        values = (now.replace("+00:00", "Z"), self.node_id, cluster, event, names, *texts)
        line = json.dumps(dict(zip(KEYS, values, strict=True)))
        logger.info("%s", line)
        if self.path is not None:
            self._write_line(self.path, line)

    def answered(self, request: Any, answer: Any, *, principals: tuple[str, ...], address: str) -> None:
        """Write what a peer's request has come to. `answer` None: its connection was closed."""
        name, subject, outcome = type(request).__name__, subject_of(request), outcome_of(answer)
        if self._has_room((principals, address, name, subject, outcome), is_done=outcome == ErrorCode.NONE.name):
            self.write(
                "answered", principals=principals, address=address, request=name, subject=subject, outcome=outcome
            )

    def refused(self, request: Any, reason: str, *, principals: tuple[str, ...], address: str) -> None:
        """Write that a peer was not allowed to send a request."""
        name, subject = type(request).__name__, subject_of(request)
        self.write("refused", principals=principals, address=address, request=name, subject=subject, outcome=reason)

    def of_application(self, event: str, *, request: str, subject: str, outcome: str = "") -> None:
        """Write what the application of this replica asks for, and what becomes of it."""
        self.write(event, principals=APPLICATION, address=LOCAL, request=request, subject=subject, outcome=outcome)

    def _has_room(self, answer: tuple[Any, ...], *, is_done: bool) -> bool:
        """Whether an answer has a line of its own in this minute."""
        now = self.clock()
        if now - self._minute_began >= MINUTE_S:
            left_out, self._left_out, self._minute_began, self._answers = self._left_out, 0, now, 0
            self._failures.clear()
            if left_out:
                outcome = f"{left_out} answers have no line here"
                self.write("left_out", principals=(), address=LOCAL, request="", subject="", outcome=outcome)
        if self._answers >= ANSWERS_MAX or (not is_done and answer in self._failures):
            self._left_out += 1
            return False
        self._answers += 1
        if not is_done:
            self._failures.add(answer)
        return True

    def _write_line(self, path: Path, line: str) -> None:
        try:
            self._append(path, line.encode("ascii") + b"\n")
        except OSError as error:
            if not self._has_failed:
                logger.warning("cannot write %s: %s; audit lines go to this logger only", path, error)
            self._has_failed = True
        else:
            self._has_failed = False

    def _append(self, path: Path, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, FILE_MODE)
        try:
            if os.write(descriptor, data) < len(data):  # one call, so that lines of several replicas do not mix
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)


def subject_of(request: Any) -> str:
    """Return what a request changes, for people: a voter with its endpoints, or features; empty for other requests."""
    if request.api_key not in AUDITED:
        return ""
    if updates := getattr(request, "feature_updates", None):
        return ", ".join(f"{row.feature} to level {row.max_version_level}" for row in updates[:PRINCIPALS_MAX])
    voter_id, directory_id = getattr(request, "voter_id", None), getattr(request, "voter_directory_id", ZERO_UUID)
    if voter_id is None:
        return ""
    text = f"voter {voter_id}" + ("" if directory_id == ZERO_UUID else f":{uuid_text(directory_id)}")
    places = [
        f"{row.name}={Endpoint(row.host, row.port)}" for row in getattr(request, "listeners", ())[:PRINCIPALS_MAX]
    ]
    if (priority := getattr(request, "priority", None)) is not None:
        text += f" with priority {priority}"
    return text + (f" at {', '.join(places)}" if places else "")


def outcome_of(answer: Any) -> str:
    """Return the error of an answer, with its words; `NONE` if there is none."""
    if answer is None:
        return "the connection was closed"
    rows = [row for row in getattr(answer, "results", ()) if row.error_code]
    worst = rows[0] if rows and not answer.error_code else answer
    if worst.error_code == ErrorCode.NONE:
        return ErrorCode.NONE.name
    words = getattr(worst, "error_message", None)
    return error_name(worst.error_code) + (f": {words}" if words else "")


def _short(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "..."
