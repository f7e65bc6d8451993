"""The audit log: changes of voters, features, the leader, topics or configurations by request, and refused requests.

Each event is one JSON object on a line of its own, with these keys in this order:

    time         UTC, as in 2026-03-01T12:30:00.125Z
    node_id      the replica that writes the line
    cluster_id   its cluster, or null
    event        `answered` (a peer's request was carried out, or not), `refused` (it was not allowed, or the peer was
                 not let in), `requested` (the application of this replica has asked for a change), `finished` (what
                 became of that) or `left_out`
    principals   the names of the peer, or an empty list; `["application"]` for the application of this replica
    address      the address of the peer, or `local`
    forwarded_by the broker that has sent the request of this client in an envelope, or empty
    request      the name of the request, such as `RemoveRaftVoterRequest`; `TlsHandshake` or `SaslLogin` of a peer that
                 was not let in
    subject      what it is about, such as `voter 3:fV0tKZb0Q1mUv3rBv0h3kQ at CONTROLLER=10.0.0.3:9093`
    outcome      `NONE` if it was done, else the error or the reason of the refusal

Texts are ASCII with escapes and at most 256 characters, so that no peer can forge a line. Lines go to the logger
"kraftlib.audit" at INFO and are appended to `[access] audit_file`, if that is set. The file is opened for each line: a
file that was renamed is left alone, and a new one is begun.

A change that was done always has its line. All other lines are bounded, so that no peer can fill a disk with them: a
line that repeats within a minute is left out, and each kind of lines has at most as many a minute as `LINES_MAX` says,
and one more for each name of a request. Peers with a name have lines of their own, so strangers cannot hide them. A
line with the event `left_out` then says how many there were of each kind. Propose, by which replicas append, is audited
of peers that are no replica by their certificate or user, but by the list `replicas`.
"""

from __future__ import annotations

import datetime
import errno
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.errors import ConfigError
from kraftlib.frozen import define, immutable
from kraftlib.security.audited import has_line, is_done, outcome_of, subject_of
from kraftlib.types import ReplicaId
from kraftlib.wire.apis import PrivateApiKey

logger = logging.getLogger("kraftlib.audit")

KEYS: Final = (
    *("time", "node_id", "cluster_id", "event", "principals", "address", "forwarded_by"),
    *("request", "subject", "outcome"),
)
"""The keys of a line, in order."""

TEXT_MAX: Final = 256
PRINCIPALS_MAX: Final = 8
FILE_MODE: Final = 0o600

ANSWERS, PROPOSALS, REFUSALS = "answers", "proposals", "refusals"
REFUSALS_OF_STRANGERS, KEPT_OUT = "refusals of peers without a name", "peers that were not let in"

LINES_MAX: Final[Mapping[str, int]] = {
    ANSWERS: 240,
    PROPOSALS: 60,
    REFUSALS: 240,
    REFUSALS_OF_STRANGERS: 60,
    KEPT_OUT: 60,
}
"""Lines of each kind in one minute, beside the first of each name of a request, and beside changes that were done."""

MINUTE_S: Final = 60.0

APPLICATION: Final = ("application",)
LOCAL: Final = "local"


@immutable(kw_only=True)
class Sender:
    """The sender of a request."""

    principals: tuple[str, ...] = ()
    address: str = LOCAL
    forwarded_by: str = ""


@define(kw_only=True, eq=False)
class AuditLog:
    """Writes the lines of one replica. `path` None: to the logger only. `clock` is in seconds."""

    node_id: ReplicaId
    cluster_id: str | None = None
    path: Path | None = None
    clock: Callable[[], float] = time.monotonic
    _has_failed: bool = attrs.field(default=False, init=False)
    _minute_began: float = attrs.field(default=0.0, init=False)
    _lines: Counter[str] = attrs.field(factory=Counter, init=False)
    _left_out: Counter[str] = attrs.field(factory=Counter, init=False)
    _written: set[tuple[Any, ...]] = attrs.field(factory=set, init=False)

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

    def write(self, event: str, *, sender: Sender, request: str = "", subject: str = "", outcome: str = "") -> None:
        """Write one line. A file that cannot be written is reported to the log, and stops no request."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        cluster = None if self.cluster_id is None else _short(self.cluster_id)
        names = [_short(name) for name in sender.principals[:PRINCIPALS_MAX]]
        texts = map(_short, (sender.address, sender.forwarded_by, request, subject, outcome))
        values = (now.replace("+00:00", "Z"), self.node_id, cluster, event, names, *texts)
        line = json.dumps(dict(zip(KEYS, values, strict=True)))
        logger.info("%s", line)
        if self.path is not None:
            self._write_line(self.path, line)

    def answered(self, request: Any, answer: Any, *, sender: Sender) -> None:
        """Write what a peer's request has come to. `answer` None: its connection was closed."""
        self.summarize()
        if not has_line(request, answer):
            return
        name, subject, outcome = type(request).__name__, subject_of(request), outcome_of(request, answer)
        if request.api_key == PrivateApiKey.PROPOSE:
            has_room = self._has_room(PROPOSALS, name, (sender.principals, outcome))
        else:
            failure = (sender.principals, sender.address, subject, outcome)
            has_room = is_done(request, answer) or self._has_room(ANSWERS, name, failure)
        if has_room:
            self.write("answered", sender=sender, request=name, subject=subject, outcome=outcome)

    def refused(self, request: Any, reason: str, *, sender: Sender) -> None:
        """Write that a peer was not allowed to send a request."""
        name, subject = type(request).__name__, subject_of(request)
        kind, who = REFUSALS, sender.principals
        if not who:
            kind, who = REFUSALS_OF_STRANGERS, (_host(sender.address),)
        if self._has_room(kind, name, (who, reason)):
            self.write("refused", sender=sender, request=name, subject=subject, outcome=reason)

    def kept_out(self, name: str, reason: str, *, sender: Sender) -> None:
        """Write that a peer was not let in: `TlsHandshake` or `SaslLogin` has failed."""
        if self._has_room(KEPT_OUT, name, (_host(sender.address), reason)):
            self.write("refused", sender=sender, request=name, outcome=reason)

    def of_application(self, event: str, *, request: str, subject: str, outcome: str = "") -> None:
        """Write a request of the application of this replica, and its outcome."""
        self.write(event, sender=Sender(principals=APPLICATION), request=request, subject=subject, outcome=outcome)

    def summarize(self, *, now: bool = False) -> None:
        """Write how many lines were left out, once their minute is over, or `now`."""
        time_s = self.clock()
        if not now and time_s - self._minute_began < MINUTE_S:
            return
        self._minute_began = time_s
        self._lines.clear()
        self._written.clear()
        if self._left_out:
            kinds = ", ".join(f"{count} {kind}" for kind, count in self._left_out.most_common())
            self._left_out.clear()
            self.write("left_out", sender=Sender(), outcome=f"{kinds} have no line here")

    def _has_room(self, kind: str, name: str, what: tuple[Any, ...]) -> bool:
        """Whether something of this kind, about a request of this name, has a line of its own in this minute."""
        self.summarize()
        is_first = (kind, name) not in self._written
        if (kind, name, what) in self._written or (self._lines[kind] >= LINES_MAX[kind] and not is_first):
            self._left_out[kind] += 1
            return False
        self._lines[kind] += 1
        self._written |= {(kind, name), (kind, name, what)}
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


def _host(address: str) -> str:
    return address.rpartition(":")[0] or address


def _short(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "..."
