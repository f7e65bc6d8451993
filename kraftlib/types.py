"""Values that every layer speaks in: replicas, epochs, offsets, endpoints."""

from __future__ import annotations

import base64
import functools
import ipaddress
import re
import uuid
from typing import Final

import attrs

from kraftlib.errors import ConfigError
from kraftlib.frozen import immutable

ReplicaId = int
"""Number of a replica, >= 0. On the wire -1 stands for "none"; in memory that is None."""

Epoch = int
"""Number of a leadership, >= 0. Only grows."""

LAST_EPOCH: Final = 0x7FFFFFFF
"""The wire has 32 bits for an epoch, with sign."""

LAST_EPOCH_TO_STAND_IN: Final = LAST_EPOCH - 2
"""An election takes the next epoch, and giving up what was won takes another."""

Offset = int
"""Place of a record in the log, from 0. Ranges are half-open."""

ZERO_UUID: Final = uuid.UUID(int=0)
"""On the wire: "no directory id given"."""

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = uuid.UUID(int=1)
"""The one topic of KRaft, text form `AAAAAAAAAAAAAAAAAAAAAQ`; its one partition is 0."""

_UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)


def uuid_text(value: uuid.UUID) -> str:
    """Return Kafka's text of a 128-bit id: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).decode("ascii")[:22]


def parse_uuid(text: str) -> uuid.UUID:
    """Read Kafka's text of a 128-bit id.

    Raises: ConfigError, if it is not 22 characters of URL-safe base64.
    """
    if not _UUID_TEXT.fullmatch(text):
        raise ConfigError(
            f"{text!r} is no id: expected 22 characters of URL-safe base64, as `kraftlib random-uuid` prints"
        )
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def new_uuid() -> uuid.UUID:
    """Return a random id that Kafka's tools accept: it never begins with `-` and is not reserved."""
    import secrets  # only here: a start makes no new id

    while True:
        value = uuid.UUID(bytes=secrets.token_bytes(16))
        # Kafka reserves (0, 0) to (0, 99) for directory ids; its argument parser takes a leading `-` for an option.
        if value.int >= 100 and not uuid_text(value).startswith("-"):
            return value


@attrs.frozen(order=True)
class ReplicaKey:
    """The identity of a replica: its id and, where known, the id of the directory that holds its log (KIP-853).

    A replica that lost its disk comes back with another directory id and is another replica.
    """

    id: ReplicaId
    directory_id: uuid.UUID | None = None

    @classmethod
    def of(cls, replica_id: ReplicaId, directory_id: uuid.UUID) -> ReplicaKey:
        """Read a key from a message, in which a directory id that is not known is all zero."""
        return cls(replica_id, directory_id if directory_id.int else None)

    def matches(self, other: ReplicaKey) -> bool:
        """Whether `other` is this voter: same id, and this directory id is unknown or the same."""
        return self.id == other.id and (self.directory_id is None or self.directory_id == other.directory_id)

    def __str__(self) -> str:
        return f"{self.id}" if self.directory_id is None else f"{self.id}:{uuid_text(self.directory_id)}"


@attrs.frozen(kw_only=True)
class OffsetAndEpoch:
    """End of a log prefix: `offset` is exclusive, `epoch` is that of the record before it.

    Ordered by epoch and then offset, so the greater one is the more up-to-date log (KIP-595, Vote).
    Also the id of a snapshot, which replaces all records below `offset` (KIP-630).
    """

    epoch: Epoch
    offset: Offset

    # Spelled out: those of attrs build two tuples by way of generators, ten times as slow.

    def __lt__(self, other: OffsetAndEpoch) -> bool:
        return self.offset < other.offset if self.epoch == other.epoch else self.epoch < other.epoch

    def __le__(self, other: OffsetAndEpoch) -> bool:
        return self.offset <= other.offset if self.epoch == other.epoch else self.epoch < other.epoch

    def __gt__(self, other: OffsetAndEpoch) -> bool:
        return self.offset > other.offset if self.epoch == other.epoch else self.epoch > other.epoch

    def __ge__(self, other: OffsetAndEpoch) -> bool:
        return self.offset >= other.offset if self.epoch == other.epoch else self.epoch > other.epoch

    def __str__(self) -> str:
        return f"{self.offset}@{self.epoch}"


BOOTSTRAP_SNAPSHOT: Final = OffsetAndEpoch(epoch=0, offset=0)
"""Id of the checkpoint with which a dynamic quorum is formatted: it holds the first voters and is never sent."""


@immutable
class OffsetRange:
    """Records [start_offset, end_offset)."""

    start_offset: Offset
    end_offset: Offset


@immutable
class LeaderAndEpoch:
    """The leader of an epoch; `leader_id` is None while none is known."""

    leader_id: ReplicaId | None
    epoch: Epoch


@immutable(kw_only=True)
class ElectionState:
    """The state on which the next election depends; it is durable before any message tells it (`quorum-state`).

    A leader and a vote may both stand for one epoch: a voter that voted for X and then follows X keeps its vote, so
    that it cannot vote twice when X is lost.
    """

    epoch: Epoch = 0
    leader_id: ReplicaId | None = None
    voted_key: ReplicaKey | None = None
    amnesiac: bool = False
    """The earlier state is lost, and with it perhaps a vote. So no vote is given until that is safe."""
    epoch_debt_ms: int = attrs.field(default=0, eq=False)
    """The debt for raised epochs when it was written (`kraftlib.consensus.extensions.epoch_budget`)."""
    static_voters: tuple[ReplicaId, ...] = attrs.field(default=(), eq=False)
    """Ids of the configured voters when it was written, as a store read them; empty where the voters stand in the log,
    or where the store keeps no list. A replica whose list has changed since is refused at its start."""


@attrs.frozen(kw_only=True, order=True)
class EpochStart:
    """First offset of an epoch: one line of `leader-epoch-checkpoint`."""

    epoch: Epoch
    start_offset: Offset


HOST_MAX: Final = 255
"""The longest name of a host, in characters (RFC 1035, 2.3.4)."""

_LABEL_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


@functools.lru_cache(maxsize=1_024)
def is_host(text: str) -> bool:
    """Whether `text` is the name of a host (RFC 952, RFC 1123), an IPv4 address or an IPv6 address without brackets.

    Names may have underscores, as those of containers do, and a dot at the end. A name whose last label is all digits
    is refused unless it is an IPv4 address: RFC 1123, 2.1, has no such names, and some systems read them as addresses.
    """
    if not 0 < len(text) <= HOST_MAX or not text.isascii():
        return False
    if ":" in text:
        address, _, scope = text.partition("%")
        return _is_address(address) and (
            address == text or (0 < len(scope) <= 63 and _LABEL_CHARACTERS.issuperset(scope))
        )
    labels = text.removesuffix(".").split(".")
    if labels[-1].isdigit():
        return _is_address(text)
    return all(
        0 < len(label) <= 63 and _LABEL_CHARACTERS.issuperset(label) and "-" not in (label[0], label[-1])
        for label in labels
    )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


UNIX: Final = "unix:"
"""Before the path of a Unix socket, where others have a host and a port."""

UNIX_PORT: Final = 1
"""The port of such an endpoint in messages and in the log, where 0 would mean that there is no endpoint."""

SOCKET_PATH_MAX: Final = 107
"""The longest path of a Unix socket, in bytes: unix(7) has room for 108, with a zero at the end."""


def socket_path(host: str) -> str | None:
    """Return the path of the Unix socket that a host of the form `unix:/path` names; None for every other text."""
    path = host.removeprefix(UNIX)
    return None if path == host or _path_trouble(path) is not None else path


def _path_trouble(path: str) -> str | None:
    """Return why a Unix socket cannot have this path in a configuration or a message; None if it can."""
    if not path.startswith("/") or path.endswith("/"):
        return "expected the path of a socket from the root, such as unix:/run/kraft/1.sock"
    if len(path) > SOCKET_PATH_MAX:
        return f"its path has {len(path)} bytes, at most {SOCKET_PATH_MAX} fit: take a shorter one, as in /run/kraft"
    if not all("!" <= character <= "~" and character != "," for character in path):
        return "its path may have printable ASCII only, without blanks and commas"
    return None


def is_reachable(host: str) -> bool:
    """Whether a replica can be told to connect to `host`: a host, or `unix:` and the path of a socket."""
    return is_host(host) or socket_path(host) is not None


@attrs.frozen(order=True)
class Endpoint:
    """Where a listener is reached; for a Unix socket the host is `unix:/path`, and the port `UNIX_PORT`.

    As text, a host that is none (`is_reachable`) is quoted: it may come from a peer.
    """

    host: str
    port: int

    def __str__(self) -> str:
        if socket_path(self.host) is not None:
            return self.host
        if not is_host(self.host):
            return f"{self.host[:HOST_MAX]!a}:{self.port}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(text: str, *, lowest_port: int = 1) -> Endpoint:
    """Read `host:port`, or `unix:/path`; an IPv6 host stands in brackets. A listener may have port 0, a free one.

    Raises: ConfigError, if a part is missing or impossible, or the port is not `lowest_port`..65535.
    """
    if text.startswith(UNIX + "/"):
        if (trouble := _path_trouble(text.removeprefix(UNIX))) is not None:
            raise ConfigError(f"{text!r} is no endpoint: {trouble}")
        return Endpoint(text, UNIX_PORT)
    match = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^:\[\]\s]+)):([0-9]{1,5})", text, re.ASCII)
    if match is None or not lowest_port <= int(match[3]) < 65536:
        raise ConfigError(f"{text!r} is no endpoint: expected host:port, with an IPv6 host in brackets, or unix:/path")
    if not is_host(match[1] or match[2]):
        raise ConfigError(f"{text!r} is no endpoint: its host must be a host name, an IPv4 or an IPv6 address")
    return Endpoint(match[1] or match[2], int(match[3]))
