"""Configuration of one replica: every field with its unit, default and reason.

One frozen value, `RaftConfig`, made in code, from a TOML file (`RaftConfig.from_toml`) or from Kafka's own property
names (`RaftConfig.from_properties`). What is wrong raises ConfigError before anything is opened, bound or written.
"""

from __future__ import annotations

import logging
import re
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.errors import ConfigError
from kraftlib.types import Endpoint, ReplicaId, parse_endpoint

MEBIBYTE: Final = 1024 * 1024
PRIORITY_MAX: Final = 100
ENGINES: Final = ("thread", "inline")
SYNC_NOTES: Final = ("auto", "always", "never")

FLUSHES: Final = ("thread", "inline")
EVENT_LOOPS: Final = ("auto", "asyncio", "uvloop")

Tell = Callable[[str], None]
"""Takes a sentence for whoever configures."""

logger = logging.getLogger(__name__)


def at_least(limit: int) -> Callable[[Any, attrs.Attribute[int], int], None]:
    """Return a validator: an integer not below `limit`."""

    def check(_: object, attribute: attrs.Attribute[int], value: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < limit:
            raise ConfigError(f"{attribute.name}={value!r} must be an integer of at least {limit}")

    return check


def between(low: int, high: int) -> Callable[[Any, attrs.Attribute[int], int], None]:
    """Return a validator: an integer from `low` to `high`."""

    def check(_: object, attribute: attrs.Attribute[int], value: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ConfigError(f"{attribute.name}={value!r} must be an integer from {low} to {high}")

    return check


def one_of(*allowed: str) -> Callable[[Any, attrs.Attribute[str], str], None]:
    """Return a validator: one of the `allowed` words."""

    def check(_: object, attribute: attrs.Attribute[str], value: str) -> None:
        if value not in allowed:
            raise ConfigError(f"{attribute.name}={value!r} must be one of {', '.join(allowed)}")

    return check


@attrs.frozen(order=True)
class StaticVoter:
    """A voter of a static quorum (kraft.version 0): its id and where it is reached."""

    id: ReplicaId
    endpoint: Endpoint

    def __str__(self) -> str:
        return f"{self.id}@{self.endpoint}"


def parse_voter(text: str) -> StaticVoter:
    """Read `id@host:port`, the form of Kafka's `controller.quorum.voters`.

    Raises: ConfigError, also for `0.0.0.0` and `::`, to which nobody can connect.
    """
    match = re.fullmatch(r"([0-9]{1,10})@(.+)", text.strip(), re.ASCII)
    if match is None:
        raise ConfigError(f"{text!r} is no voter: expected id@host:port")
    endpoint = parse_endpoint(match[2])
    if endpoint.host in ("0.0.0.0", "::"):  # refused, not bound
        raise ConfigError(f"voter {text!r}: nobody can connect to {endpoint.host}; name a routable host")
    return StaticVoter(int(match[1]), endpoint)


def parse_voters(text: str) -> tuple[StaticVoter, ...]:
    """Read a comma-separated list of `id@host:port`."""
    return tuple(parse_voter(part) for part in text.split(",") if part.strip())


@attrs.frozen(kw_only=True)
class RaftConfig:
    """Identity, places, timeouts and limits of one replica."""

    node_id: ReplicaId = attrs.field(validator=at_least(0))
    """Number of this replica in its quorum."""

    directory: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    """Kafka's `metadata.log.dir`, made by `kraftlib format`. None: nothing is kept on disk (memory log)."""

    cluster_id: str | None = None
    """Name of the cluster. None: the one that the directory was formatted with."""

    voters: tuple[StaticVoter, ...] = ()
    """Static quorum (kraft.version 0). Empty where the voters stand in the log (kraft.version 1). The same ids on every
    replica, for ever: one that has run with another list is refused. Addresses may change."""

    bootstrap_servers: tuple[Endpoint, ...] = ()
    """Where to look for the leader. Empty: the static voters."""

    listen: Endpoint = Endpoint("127.0.0.1", 0)
    """Where this replica accepts connections. Loopback by default; port 0: that of its entry in `voters`, or any."""

    advertised: Endpoint | None = None
    """What others are told to connect to. None: what is listened on."""

    listener_name: str = "CONTROLLER"
    """Name of the listener in voter sets and BeginQuorumEpoch; upper case, as Kafka compares."""

    insecure: bool = False
    """Allow listening beyond loopback without TLS."""

    election_timeout_ms: int = attrs.field(default=1_000, validator=at_least(0))
    """A voter that knows no leader stands after this much plus as much again at random."""

    election_backoff_max_ms: int = attrs.field(default=1_000, validator=at_least(0))
    """Longest wait of a voter that is not the first successor named by a leaving leader."""

    fetch_timeout_ms: int = attrs.field(default=2_000, validator=at_least(1))
    """A follower that completes no Fetch for this long starts an election; a leader that no majority fetches from
    resigns after 1.5 times as long."""

    fetch_max_wait_ms: int = attrs.field(default=500, validator=at_least(0))
    """How long a leader may hold a Fetch that it has nothing to answer."""

    fetch_max_bytes: int = attrs.field(default=MEBIBYTE, validator=at_least(1))
    """How many bytes a follower asks for at once; at least one batch always comes."""

    snapshot_max_bytes: int = attrs.field(default=MEBIBYTE, validator=at_least(1))
    """How many bytes of a snapshot a follower asks for at once."""

    snapshot_rate_bytes: int = attrs.field(default=0, validator=at_least(0))
    """How many bytes of a snapshot a follower asks for per second, at most; 0: as many as come (beyond Kafka)."""

    request_timeout_ms: int = attrs.field(default=2_000, validator=at_least(1))
    """A request without an answer for this long is given up; its late answer is ignored."""

    retry_backoff_ms: int = attrs.field(default=20, validator=at_least(0))
    """Pause of a connection after an error answer."""

    election_priority: int = attrs.field(default=0, validator=between(0, PRIORITY_MAX))
    """How much this voter is wanted as leader, 0 to 100. A leader of lower priority hands over to it once it has had
    everything for `priority_takeover_ms`, and it stands a little earlier than others. It never keeps anybody from being
    elected, and its effect fades while it fails to lead. Known to replicas of ours only (beyond Kafka)."""

    priority_takeover_ms: int = attrs.field(default=10_000, validator=at_least(1))
    """How long a voter of higher priority must have been there before a leader hands over to it."""

    leader_loss_stagger_ms: int = attrs.field(default=20, validator=at_least(0))
    """A follower that lost its connection and is refused a new one takes the leader for dead and stands after as many
    of these slots as there are voters before it, so that a killed leader is replaced in tens of milliseconds and no
    two stand at once (beyond Kafka)."""

    append_linger_ms: int = attrs.field(default=0, validator=at_least(0))
    """How long a leader gathers appends before writing them. 0: what arrives while a flush runs is the next batch."""

    batch_max_bytes: int = attrs.field(default=8 * MEBIBYTE, validator=at_least(1_024))
    """Largest batch, hence largest atomic append."""

    backlog_max_bytes: int = attrs.field(default=64 * MEBIBYTE, validator=at_least(1_024))
    """Appended and not yet committed bytes, beyond which an append raises BacklogFullError."""

    segment_bytes: int = attrs.field(default=1_024 * MEBIBYTE, validator=at_least(8 * MEBIBYTE))
    """A log segment is closed before it would grow beyond this."""

    segment_ms: int = attrs.field(default=7 * 24 * 3_600 * 1_000, validator=at_least(1))
    """A log segment is closed when its first batch is older than this."""

    snapshot_interval_bytes: int = attrs.field(default=20 * MEBIBYTE, validator=at_least(0))
    """A snapshot of the state machine is taken when so much was applied since the last one; 0: never for that."""

    snapshot_interval_ms: int = attrs.field(default=3_600_000, validator=at_least(0))
    """A snapshot is taken when the last one is so old and anything was applied since; 0: never for that."""

    snapshot_interval_records: int = attrs.field(default=0, validator=at_least(0))
    """A snapshot is taken when so many records were applied since the last one; 0: never for that (beyond Kafka)."""

    increments_max: int = attrs.field(default=8, validator=at_least(0))
    """How many increments a state machine that knows its changes may put on a checkpoint, before they are merged into
    the next one; 0: only checkpoints (beyond Kafka)."""

    retention_bytes: int = attrs.field(default=100 * MEBIBYTE, validator=at_least(-1))
    """Beyond this size of log and snapshots the oldest snapshot goes, and the log below the next one; -1: never for
    that. The newest snapshot and the log behind it always stay."""

    retention_ms: int = attrs.field(default=7 * 24 * 3_600 * 1_000, validator=at_least(-1))
    """A snapshot goes when the last record that it covers is older than this and there is a newer one; -1: never."""

    retention_interval_ms: int = attrs.field(default=60_000, validator=at_least(1))
    """How often retention looks whether something may go; after each new snapshot it looks, too."""

    hold_max_bytes: int = attrs.field(default=1_024 * MEBIBYTE, validator=at_least(0))
    """A retention hold expires when it alone keeps a log of more than this, so that a reader that is gone for good
    cannot fill the disk (beyond Kafka)."""

    segment_reserve_bytes: int = attrs.field(default=0, validator=at_least(0))
    """How much disk space is reserved ahead of the end of the log, without changing the size of its file. 0: none; a
    full disk is then noticed by the space that is left, and a little later."""

    segment_zero_fill: bool = False
    """Whether `segment_reserve_bytes` of the next segment are filled with zeros beforehand, in the background, and not
    only reserved: flushes are faster on some file systems, and a segment that grows ends in zeros (beyond Kafka)."""

    sync_note: str = attrs.field(default="auto", validator=one_of(*SYNC_NOTES))
    """Whether each flush also makes durable how far it came, in `kraftlib-sync.json`, before it counts. Without that a
    power cut may leave what looks like damage, which the others then repair. `auto`: where there is no majority without
    this replica, alone or as one of two voters, for there nobody could. `always`: also where all replicas may lose
    power at once. `never`: a sole voter may then have to be restored from a backup after a power cut. It costs one more
    sync per flush, of one page (beyond Kafka)."""

    disk_reserve_bytes: int = attrs.field(default=8 * MEBIBYTE, validator=at_least(0))
    """Space taken in advance, in `kraftlib-reserve.bin`, and given back when the disk is full, so that votes can always
    be written. With less than twice as much left a leader refuses appends (DiskFullError) and a follower takes no
    records, until there is space again. 0: no reserve, and a full disk stops the replica."""

    scrub_interval_ms: int = attrs.field(default=24 * 3_600 * 1_000, validator=at_least(0))
    """How often all that is stored is read, to find what the disk has lost while others still have it. 0: never."""

    scrub_bytes_per_s: int = attrs.field(default=16 * MEBIBYTE, validator=at_least(1_024))
    """How fast that is done at most."""

    frame_max_bytes: int = attrs.field(default=100 * MEBIBYTE, validator=at_least(1_024))
    """Largest request or answer that is read from a connection."""

    epoch_jump_max: int = attrs.field(default=1_000_000, validator=at_least(1))
    """A peer's epoch further ahead than this is refused: it would wear out the 32 bits of epochs (beyond Kafka).

    A replica that is new, or was away for long, in a quorum of so high an epoch needs a greater one to join it.
    """

    yield_to: tuple[ReplicaId, ...] | None = attrs.field(default=None, converter=attrs.converters.optional(tuple))
    """Among Kafka's controllers: the voters that have a controller of their own. A leader of a Kafka cluster does more
    than lead a log, so this replica lets them stand first and, once elected all the same, proves its epoch and hands
    over to the first of them that has caught up; meanwhile it tells brokers that it is no controller (beyond Kafka).
    None: whoever says, when it is connected to, that it supports `metadata.version`. Empty: nobody."""

    private_apis: bool = attrs.field(default=True, validator=attrs.validators.instance_of(bool))
    """Serve and ask what only replicas of ours know, such as read barriers. Kafka peers never hear of it (beyond
    Kafka)."""

    auto_join: bool = attrs.field(default=False, validator=attrs.validators.instance_of(bool))
    """An observer of a dynamic quorum adds itself to the voters (KIP-1186), after removing its own lost disk. A voter
    of its id that still fetches is never removed: then this replica was given a wrong id."""

    strict: bool = attrs.field(default=False, validator=attrs.validators.instance_of(bool))
    """Also refuse raft requests that name no cluster, and those meant for another replica before their epoch is
    believed (beyond Kafka). What it refuses it refuses by closing the connection."""

    shutdown_timeout_ms: int = attrs.field(default=5_000, validator=at_least(0))
    """How long a graceful shutdown waits for a successor."""

    engine: str = attrs.field(default="thread", validator=one_of(*ENGINES))
    """`thread`: the replica has an event loop of its own, so that a busy host does not cost the quorum its leader.
    `inline`: it runs in the host's loop, which is faster and needs a host that never blocks."""

    flush: str = attrs.field(default="thread", validator=one_of(*FLUSHES))
    """`thread`: fsync runs beside the loop. `inline`: in it, faster on a fast disk; a slow one then costs elections."""

    event_loop: str = attrs.field(default="auto", validator=one_of(*EVENT_LOOPS))
    """Loop of an engine with a thread of its own: `uvloop`, `asyncio`, or `auto`: uvloop where it is installed."""

    file_mode: int = attrs.field(default=0o600, validator=at_least(0))
    """Mode of new files; directories get it with search permission added."""

    def __attrs_post_init__(self) -> None:
        if self.fetch_max_wait_ms >= self.fetch_timeout_ms:
            raise ConfigError(
                f"fetch_max_wait_ms={self.fetch_max_wait_ms} must be below fetch_timeout_ms="
                f"{self.fetch_timeout_ms}, else an idle leader looks like a dead one"
            )
        if self.segment_zero_fill and self.segment_reserve_bytes == 0:
            raise ConfigError(
                "segment_zero_fill=True fills segment_reserve_bytes=0 with zeros: say how much, for instance as much as"
                f" segment_bytes={self.segment_bytes}"
            )
        if self.request_timeout_ms < self.fetch_max_wait_ms:
            raise ConfigError(
                f"request_timeout_ms={self.request_timeout_ms} must not be below fetch_max_wait_ms="
                f"{self.fetch_max_wait_ms}, else every idle Fetch times out"
            )
        ids = [voter.id for voter in self.voters]
        if len(set(ids)) != len(ids):
            raise ConfigError(f"voters={','.join(map(str, self.voters))}: an id may stand there once only")
        if self.yield_to is not None and self.node_id in self.yield_to:
            raise ConfigError(f"yield_to={list(self.yield_to)}: replica {self.node_id} cannot hand over to itself")

    @classmethod
    def from_toml(cls, path: str | Path) -> RaftConfig:
        """Read a TOML file: the fields of this class at top level or under `[kraftlib]`.

        Paths are taken relative to the file.
        Raises: ConfigError for unreadable or wrong TOML, unknown keys, bad values.
        """
        path = Path(path)
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read the configuration {path}: {error.strerror or error}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is no TOML: {error}") from error
        table = table.get("kraftlib", table)
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: kraftlib={table!r} must be a table")
        if isinstance(table.get("directory"), str):
            table = {**table, "directory": path.parent / table["directory"]}
        return cls.from_mapping(table, where=str(path))

    @classmethod
    def from_properties(cls, source: str | Path | Mapping[str, str], *, tell: Tell | None = None) -> RaftConfig:
        """Read Kafka's own `server.properties`, of a controller or of a broker that is to be followed as an observer.

        `source` is a file, or properties that were read already. Every key that is not a replica's is told to `tell`
        with the reason, one call a key; without it they go to the log of this module, at WARNING. Paths are taken as
        they stand, as in Kafka. Keys that are left out have kraftlib's defaults.
        Raises: ConfigError for unreadable files, bad values, ZooKeeper's clusters, SASL.
        """
        from kraftlib.properties import parse_properties, settings_of

        where = "properties"
        if isinstance(source, str | Path):
            where = str(source)
            try:
                text = Path(source).read_text(encoding="iso-8859-1")  # the encoding of java.util.Properties
            except OSError as error:
                raise ConfigError(f"cannot read the configuration {where}: {error.strerror or error}") from error
        try:
            settings = settings_of(parse_properties(text) if isinstance(source, str | Path) else source)
            config = cls.from_mapping(settings.fields, where=where)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        for word in settings.words:
            (tell or logger.warning)(f"{where}: {word}")
        return config

    @classmethod
    def from_mapping(cls, table: Mapping[str, object], *, where: str = "configuration") -> RaftConfig:
        """Build from plain values (text, numbers, lists), as a TOML table has them."""
        fields = typing.get_type_hints(cls)
        unknown = sorted(set(table) - set(fields))
        if unknown:
            raise ConfigError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(sorted(fields))}")
        if "node_id" not in table:
            raise ConfigError(f"{where}: node_id is missing")
        values = {name: _from_plain(name, value, fields[name]) for name, value in table.items()}
        return cls(**values)


def _from_plain(name: str, value: object, wanted: object) -> Any:
    """Turn a plain value into what the field `name` of type `wanted` holds."""
    if name == "voters":
        return tuple(parse_voter(text) for text in _texts(name, value))
    if name == "bootstrap_servers":
        return tuple(parse_endpoint(text) for text in _texts(name, value))
    if name in ("listen", "advertised"):
        if not isinstance(value, str):
            raise ConfigError(f"{name}={value!r} must be text of the form host:port")
        return parse_endpoint(value, lowest_port=0 if name == "listen" else 1)
    if name == "yield_to":
        return _numbers(name, value)
    if name == "directory":
        if not isinstance(value, str | Path):
            raise ConfigError(f"{name}={value!r} must be a path")
        return Path(value)
    if name == "file_mode" and isinstance(value, str):
        return int(value, 8) if re.fullmatch(r"0?[0-7]{3}", value) else value
    kinds = typing.get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
    kind = next(kind for kind in kinds if kind is not type(None))
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{name}={value!r} must be of type {kind.__name__}")
    return value


def _texts(name: str, value: object) -> list[str]:
    if isinstance(value, str):
        return [part for part in value.split(",") if part.strip()]
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return value
    raise ConfigError(f"{name}={value!r} must be a list of text or one comma-separated text")


def _numbers(name: str, value: object) -> tuple[int, ...]:
    parts: list[object] = list(value) if isinstance(value, list) else list(_texts(name, value))
    if all(isinstance(part, int) and not isinstance(part, bool) for part in parts):
        return tuple(int(str(part)) for part in parts)
    if all(isinstance(part, str) and re.fullmatch(r"\s*[0-9]{1,10}\s*", part, re.ASCII) for part in parts):
        return tuple(int(str(part)) for part in parts)
    raise ConfigError(f"{name}={value!r} must be a list of replica ids")
