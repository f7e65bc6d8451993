"""Configuration of one replica: `help(RaftConfig)` tells each option with its unit and default.

One frozen value, `RaftConfig`, made in code, from a TOML file (`RaftConfig.from_toml`) or from Kafka's own property
names (`RaftConfig.from_properties`). A wrong option raises ConfigError before anything is opened, bound or written.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.environment import check_others, names_set, table_from_environment
from kraftlib.errors import ConfigError
from kraftlib.frozen import immutable
from kraftlib.plain_values import StaticVoter as StaticVoter
from kraftlib.plain_values import from_plain, from_plain_or_built, nearest, types_of
from kraftlib.security.access import AccessConfig
from kraftlib.security.limits import TcpLimits
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.tls import TlsConfig
from kraftlib.types import UNIX, Endpoint, ReplicaId, parse_endpoint
from kraftlib.validators import MEBIBYTE, at_least, between, one_of

NODE_ID_MAX: Final = 2**31 - 1
"""Ids are int32 on the wire."""
PRIORITY_MAX: Final = 100
ENGINES: Final = ("thread", "inline")
SYNC_NOTES: Final = ("auto", "always", "never")

FLUSHES: Final = ("thread", "inline")
EVENT_LOOPS: Final = ("auto", "asyncio", "uvloop")

Tell = Callable[[str], None]
"""Receives one sentence about a key of the configuration."""

logger = logging.getLogger(__name__)


def _absolute(path: str | Path | None) -> Path | None:
    if path is not None and UNIX in str(path):
        raise ConfigError(f"unix_socket={str(path)!r} must be a path, without {UNIX!r} before it")
    return None if path is None else Path(path).absolute()


def _is_socket(_: object, attribute: attrs.Attribute[Path | None], value: Path | None) -> None:
    if value is not None:
        try:
            parse_endpoint(f"{UNIX}{value}")
        except ConfigError as error:
            raise ConfigError(f"{attribute.name}: {error}") from error


@immutable(kw_only=True)
class RaftConfig:
    """Identity, addresses, timeouts and limits of one replica. Each option is a keyword.

    After the name of an option stand its unit or form and its default. Addresses, voters and tables are taken in the
    form of a file, too: `voters="1@10.0.0.1:9191,2@10.0.0.2:9191"`. "Beyond Kafka" marks options that a Kafka
    controller does not have.

    **Identity and addresses**

    node_id (number, required)
        The number of this replica in its quorum.
    directory (path, default None)
        Kafka's `metadata.log.dir`; `kraftlib format` creates it. None: the log is kept in memory only.
    cluster_id (text, default None)
        The name of the cluster. None: the name that the directory was formatted with.
    voters (list of `id@host:port` or `id@unix:/path`, default empty)
        The voters of a static quorum (kraft.version 0). Empty: the voters are read from the log (kraft.version 1). All
        replicas name the same ids for ever; a replica that has run with other ids is refused. Addresses may change.
    bootstrap_servers (list of `host:port` or `unix:/path`, default empty)
        The replicas that are asked for the leader. Empty: the static voters.
    listen (`host:port` or `unix:/path`, default 127.0.0.1:0)
        The address, or the Unix socket, on which this replica accepts connections. Port 0: the port of its entry in
        `voters`, or any free port; if that entry is a Unix socket, this socket alone.
    unix_socket (path, default None)
        A Unix socket on which this replica accepts connections beside `listen`, for other replicas and tools on this
        machine. Linux only (beyond Kafka).
    unix_socket_mode (octal mode, default 0o600)
        The mode of the file of a Unix socket. `access` has the rights of those who can open it (beyond Kafka).
    advertised (`host:port` or `unix:/path`, default None)
        The address that other replicas are told to connect to. None: the address that this replica listens on.
    listener_name (text, default "CONTROLLER")
        The name of the listener in voter sets and BeginQuorumEpoch, in upper case, as Kafka compares it.
    insecure (true or false, default False)
        Allow listening beyond loopback without TLS or SASL. Every peer that connects is then an administrator: any host
        that reaches the port can read the log, remove voters, take over the leadership and write records.

    **Security**

    tls (table, default None)
        Certificate, key and authority of this replica (`kraftlib.security.tls.TlsConfig`). None: plaintext, unless
        the application hands its own contexts to `RaftClient`.
    sasl (table, default None)
        The secret or the users by which replicas and clients authenticate before anything else
        (`kraftlib.security.sasl.SaslConfig`). None: no SASL.
    limits (table, default None)
        Limits of connections, frames and answers (`kraftlib.security.limits.TcpLimits`). None: the defaults there.
    access (table, default None)
        Who may do what, and where that is recorded (`kraftlib.security.access.AccessConfig`): principals as `replicas`,
        `admins`, `observers` and `clients`, what a peer without a name may do (`anonymous`), and `audit_file`. None: a
        certificate with the URI `kraft://CLUSTER/ID` is that replica, other authenticated peers may look, and a peer
        without a name may do everything if this replica listens on loopback or is `insecure`, and else nothing.

    **Elections**

    election_timeout_ms (milliseconds, default 1000)
        A voter that knows no leader starts an election after this time plus a random time of up to the same length.
    election_backoff_max_ms (milliseconds, default 1000)
        The longest wait of a voter that is not the first successor that a resigning leader names.
    election_priority (0 to 100, default 0)
        The preference for this voter as leader. A leader with a lower priority transfers leadership to it once it has
        been caught up for `priority_takeover_ms`. The priority never prevents the election of another voter, and its
        effect fades while this voter fails to lead. Kafka replicas do not know it (beyond Kafka).
    priority_takeover_ms (milliseconds, default 10000)
        The time for which a voter with a higher priority is caught up before a leader hands over to it (beyond Kafka).
    leader_loss_stagger_ms (milliseconds, default 20)
        A follower whose connection broke and whose new connection is refused takes the leader for dead. It starts an
        election after one slot of this length for each voter before it, so that a killed leader is replaced in tens
        of milliseconds and two voters do not start at once (beyond Kafka).
    yield_to (list of replica ids, default None)
        Among Kafka's controllers: the voters that run a controller. Such a voter stands before this replica; if this
        replica is elected all the same, it commits the start of its epoch and hands over to the first of them that is
        caught up. None: every voter whose ApiVersions lists `metadata.version`. Empty: no voter (beyond Kafka).
    shutdown_timeout_ms (milliseconds, default 5000)
        The time for which a graceful shutdown waits for a successor.

    **Fetching and requests**

    fetch_timeout_ms (milliseconds, default 2000)
        A follower that completes no Fetch for this time starts an election. A leader that no majority fetches from
        resigns after 1.5 times as long.
    fetch_max_wait_ms (milliseconds, default 500)
        The longest time for which a leader holds a Fetch that it has no news for.
    fetch_max_bytes (bytes, default 1 MiB)
        The bytes that a follower asks for in one Fetch; the answer holds at least one batch.
    observers_at_once (observers, default 8)
        Up to so many observers are told of a record at once. If there are more, a leader tells them in rounds, after
        `observer_round_ms` at the latest, and voters never wait for them (beyond Kafka).
    observer_round_ms (milliseconds, default 100)
        The time in which each of many observers has its turn to be told what is new. Less makes them more current and
        costs the leader more (beyond Kafka).
    upstreams (list of `host:port` or `unix:/path`, default empty)
        The followers or observers of kraftlib from which this observer fetches, the preferred one first, so that many
        observers do not all fetch from the leader. It takes committed records only. One that does not answer or has no
        news for `fetch_timeout_ms` is left for a while, for the next one, and after the last one for the leader. Not
        for voters, nor with `auto_join` (beyond Kafka).
    snapshot_max_bytes (bytes, default 1 MiB)
        The bytes of a snapshot that a follower asks for in one FetchSnapshot.
    snapshot_rate_bytes (bytes per second, default 0)
        The highest rate at which a follower fetches a snapshot. 0: no limit (beyond Kafka).
    request_timeout_ms (milliseconds, default 2000)
        A request without an answer for this time has failed; a later answer is ignored.
    retry_backoff_ms (milliseconds, default 20)
        The pause of a connection after an error.
    frame_max_bytes (bytes, default 100 MiB)
        The largest request or response that is read from a connection.
    epoch_jump_max (epochs, default 1000000)
        The largest number of epochs by which peers may raise the epoch of this replica at once; ten more are allowed
        each second, also after a restart. A larger step is refused, since it would use up the 32 bits of epochs. A
        replica that joins a quorum of a higher epoch needs a larger value (beyond Kafka).
    private_apis (true or false, default True)
        Serve and send requests that only kraftlib knows, such as read barriers. Kafka replicas are never sent one
        (beyond Kafka).
    digest_interval_ms (milliseconds, default None)
        The interval at which replicas compare hashes of the states of their state machines, the same on every replica.
        A replica whose state differs from that of a majority is quarantined and healed. 0: never. None: 20000 with the
        machine of kraftlib.open for sessions, keys and locks, never for others. A state machine of your own must make
        equal snapshots of equal states (beyond Kafka).
    auto_join (true or false, default False)
        An observer of a dynamic quorum adds itself to the voters (KIP-1186), and first removes the voter of its own id
        with another disk. A voter of its id that still fetches is not removed: this replica then has a wrong id.
    strict (true or false, default False)
        Refuse raft requests without a cluster id, and requests for another replica before their epoch is taken over,
        by closing the connection (beyond Kafka).

    **Appending**

    append_linger_ms (milliseconds, default 0)
        The time for which a leader gathers records before it writes them. 0: records that arrive during a flush form
        the next batch.
    batch_max_bytes (bytes, default 8 MiB)
        The largest batch, and so the largest atomic append.
    backlog_max_bytes (bytes, default 64 MiB)
        An append raises BacklogFullError while more bytes than this are appended and not committed.

    **The log on disk**

    segment_bytes (bytes, default 1 GiB)
        A log segment is closed before it grows beyond this size.
    segment_ms (milliseconds, default 7 days)
        A log segment is closed when its first batch is older than this.
    segment_reserve_bytes (bytes, default 0)
        The disk space that is reserved ahead of the end of the log; the size of the file does not change. 0: none.
    segment_zero_fill (true or false, default False)
        Fill `segment_reserve_bytes` of the next segment with zeros in the background. Flushes are then faster on some
        file systems (beyond Kafka).
    sync_note (`auto`, `always` or `never`, default "auto")
        Whether each flush also makes durable how far it came, in `kraftlib-sync.json`, before it counts; this is one
        more sync of one page. Without the note a power cut may leave what looks like damage, which is then repaired
        from the other replicas. `auto`: for a sole voter and for one of two voters, since no other majority could
        repair them. `always`: also where all replicas may lose power at once. `never`: a sole voter may need a backup
        after a power cut (beyond Kafka).
    disk_reserve_bytes (bytes, default 8 MiB)
        The space that is reserved in `kraftlib-reserve.bin` and released when the disk is full, so that votes can
        always be written. With less than twice as much free space a leader refuses appends (DiskFullError) and a
        follower takes no records. A follower asks for no more than half of it in one Fetch. A leader writes a quarter
        of it at once, or one append that is larger; if more than that waits when the disk becomes full, the leader
        resigns, and what it has not written is refused. A replica that has to write one append larger than the reserve
        to a full disk stops: keep `batch_max_bytes` at or below it. 0: no reserve; a full disk stops the replica
        (beyond Kafka).
    scrub_interval_ms (milliseconds, default 24 hours)
        The interval at which the whole directory is read, to find damage while other replicas can repair it. 0: never
        (beyond Kafka).
    scrub_bytes_per_s (bytes per second, default 16 MiB)
        The highest rate of that reading (beyond Kafka).
    file_mode (octal mode, default 0o600)
        The mode of new files; new directories get it with search permission added.

    **Snapshots and retention**

    snapshot_interval_bytes (bytes, default 20 MiB)
        A snapshot is taken after this many bytes were applied since the last snapshot. 0: never for this reason.
    snapshot_interval_ms (milliseconds, default 1 hour)
        A snapshot is taken when the last one is older than this and a record was applied since. 0: never for this
        reason.
    snapshot_interval_records (records, default 0)
        A snapshot is taken after this many records were applied since the last snapshot. 0: never for this reason
        (beyond Kafka).
    increments_max (increments, default 8)
        The largest number of increments on one checkpoint of an IncrementalStateMachine before they are merged into
        the next checkpoint. 0: checkpoints only (beyond Kafka).
    retention_bytes (bytes, default 100 MiB)
        While log and snapshots are larger than this, the oldest snapshot is deleted, and the log below the next one.
        The newest snapshot and the log behind it always stay. -1: never for this reason.
    retention_ms (milliseconds, default 7 days)
        A snapshot is deleted when the last record that it covers is older than this and there is a newer snapshot. -1:
        never for this reason.
    retention_interval_ms (milliseconds, default 60000)
        The interval at which retention checks what to delete; it also checks after each new snapshot.
    hold_max_bytes (bytes, default 1 GiB)
        A retention hold expires when it alone keeps more bytes of the log than this, so that a reader that never comes
        back cannot fill the disk (beyond Kafka).

    **Threads**

    engine (`thread` or `inline`, default "thread")
        `thread`: the replica has an event loop of its own, so that a busy host does not cost the quorum its leader.
        `inline`: the replica runs in the loop of the host, which is faster and needs a host that never blocks.
    flush (`thread` or `inline`, default "thread")
        `thread`: fsync runs beside the loop. `inline`: fsync runs in the loop, which is faster on a fast disk; on a
        slow disk it causes elections.
    event_loop (`auto`, `asyncio` or `uvloop`, default "auto")
        The event loop of an engine with a thread of its own. `auto`: uvloop if it is installed.
    """

    # Identity and addresses
    node_id: ReplicaId = attrs.field(validator=between(0, NODE_ID_MAX))
    directory: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    cluster_id: str | None = None
    voters: tuple[StaticVoter, ...] = ()
    bootstrap_servers: tuple[Endpoint, ...] = ()
    listen: Endpoint = Endpoint("127.0.0.1", 0)
    unix_socket: Path | None = attrs.field(default=None, converter=_absolute, validator=_is_socket)
    unix_socket_mode: int = attrs.field(default=0o600, validator=between(0, 0o777))
    advertised: Endpoint | None = None
    listener_name: str = "CONTROLLER"
    insecure: bool = False

    # Security
    tls: TlsConfig | None = None
    sasl: SaslConfig | None = None
    limits: TcpLimits | None = None
    access: AccessConfig | None = None

    # Elections
    election_timeout_ms: int = attrs.field(default=1_000, validator=at_least(1))
    election_backoff_max_ms: int = attrs.field(default=1_000, validator=at_least(0))
    election_priority: int = attrs.field(default=0, validator=between(0, PRIORITY_MAX))
    priority_takeover_ms: int = attrs.field(default=10_000, validator=at_least(1))
    leader_loss_stagger_ms: int = attrs.field(default=20, validator=at_least(0))
    yield_to: tuple[ReplicaId, ...] | None = attrs.field(default=None, converter=attrs.converters.optional(tuple))
    shutdown_timeout_ms: int = attrs.field(default=5_000, validator=at_least(0))

    # Fetching and requests
    fetch_timeout_ms: int = attrs.field(default=2_000, validator=at_least(2))
    fetch_max_wait_ms: int = attrs.field(default=500, validator=at_least(1))
    fetch_max_bytes: int = attrs.field(default=MEBIBYTE, validator=at_least(1))
    observers_at_once: int = attrs.field(default=8, validator=at_least(0))
    observer_round_ms: int = attrs.field(default=100, validator=at_least(1))
    upstreams: tuple[Endpoint, ...] = ()
    snapshot_max_bytes: int = attrs.field(default=MEBIBYTE, validator=at_least(1))
    snapshot_rate_bytes: int = attrs.field(default=0, validator=at_least(0))
    request_timeout_ms: int = attrs.field(default=2_000, validator=at_least(1))
    retry_backoff_ms: int = attrs.field(default=20, validator=at_least(1))
    frame_max_bytes: int = attrs.field(default=100 * MEBIBYTE, validator=at_least(1_024))
    epoch_jump_max: int = attrs.field(default=1_000_000, validator=at_least(1))
    private_apis: bool = attrs.field(default=True, validator=attrs.validators.instance_of(bool))
    digest_interval_ms: int | None = attrs.field(default=None, validator=attrs.validators.optional(at_least(0)))
    auto_join: bool = attrs.field(default=False, validator=attrs.validators.instance_of(bool))
    strict: bool = attrs.field(default=False, validator=attrs.validators.instance_of(bool))

    # Appending
    append_linger_ms: int = attrs.field(default=0, validator=at_least(0))
    batch_max_bytes: int = attrs.field(default=8 * MEBIBYTE, validator=at_least(1_024))
    backlog_max_bytes: int = attrs.field(default=64 * MEBIBYTE, validator=at_least(1_024))

    # The log on disk
    segment_bytes: int = attrs.field(default=1_024 * MEBIBYTE, validator=at_least(8 * MEBIBYTE))
    segment_ms: int = attrs.field(default=7 * 24 * 3_600 * 1_000, validator=at_least(1))
    segment_reserve_bytes: int = attrs.field(default=0, validator=at_least(0))
    segment_zero_fill: bool = False
    sync_note: str = attrs.field(default="auto", validator=one_of(*SYNC_NOTES))
    disk_reserve_bytes: int = attrs.field(default=8 * MEBIBYTE, validator=at_least(0))
    scrub_interval_ms: int = attrs.field(default=24 * 3_600 * 1_000, validator=at_least(0))
    scrub_bytes_per_s: int = attrs.field(default=16 * MEBIBYTE, validator=at_least(1_024))
    file_mode: int = attrs.field(default=0o600, validator=at_least(0))

    # Snapshots and retention
    snapshot_interval_bytes: int = attrs.field(default=20 * MEBIBYTE, validator=at_least(0))
    snapshot_interval_ms: int = attrs.field(default=3_600_000, validator=at_least(0))
    snapshot_interval_records: int = attrs.field(default=0, validator=at_least(0))
    increments_max: int = attrs.field(default=8, validator=at_least(0))
    retention_bytes: int = attrs.field(default=100 * MEBIBYTE, validator=at_least(-1))
    retention_ms: int = attrs.field(default=7 * 24 * 3_600 * 1_000, validator=at_least(-1))
    retention_interval_ms: int = attrs.field(default=60_000, validator=at_least(1))
    hold_max_bytes: int = attrs.field(default=1_024 * MEBIBYTE, validator=at_least(0))

    # Threads
    engine: str = attrs.field(default="thread", validator=one_of(*ENGINES))
    flush: str = attrs.field(default="thread", validator=one_of(*FLUSHES))
    event_loop: str = attrs.field(default="auto", validator=one_of(*EVENT_LOOPS))

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
        if self.digest_interval_ms and not self.private_apis:
            raise ConfigError(
                f"digest_interval_ms={self.digest_interval_ms} needs private_apis=True: replicas compare by these"
            )
        if self.upstreams:
            self._check_upstreams()
        ids = [voter.id for voter in self.voters]
        if len(set(ids)) != len(ids):
            raise ConfigError(f"voters={','.join(map(str, self.voters))}: an id may stand there once only")
        if self.yield_to is not None and self.node_id in self.yield_to:
            raise ConfigError(f"yield_to={list(self.yield_to)}: replica {self.node_id} cannot hand over to itself")

    def _check_upstreams(self) -> None:
        """Refuse upstreams for a replica that cannot have any."""
        named = f"upstreams={','.join(map(str, self.upstreams))}"
        if self.node_id in [voter.id for voter in self.voters]:
            raise ConfigError(f"{named}: replica {self.node_id} is a voter, and voters fetch from the leader")
        if self.auto_join:
            raise ConfigError(f"{named} with auto_join=True: a replica that is to vote fetches from the leader")
        if not self.private_apis:
            raise ConfigError(f"{named} needs private_apis=True: only replicas of kraftlib serve observers")
        if len(set(self.upstreams)) != len(self.upstreams):
            raise ConfigError(f"{named}: an address may stand there once only")
        own = {self.advertised, self.unix_endpoint, self.listen if self.listen.port else None}
        if own.intersection(self.upstreams):
            raise ConfigError(f"{named}: one of these is the address of replica {self.node_id} itself")

    @property
    def unix_endpoint(self) -> Endpoint | None:
        """The endpoint of `unix_socket`."""
        return None if self.unix_socket is None else parse_endpoint(f"{UNIX}{self.unix_socket}")

    @classmethod
    def from_toml(cls, path: str | Path) -> RaftConfig:
        """Read a TOML file: the fields of this class at top level or under `[kraftlib]`.

        Paths are taken relative to the file. Environment variables take the place of options of `[tls]` and `[sasl]`
        (`kraftlib.environment`).
        Raises: ConfigError for unreadable or wrong TOML, unknown keys, bad values.
        """
        import tomllib  # only here: a program may configure its replica without any TOML

        path = Path(path)
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise ConfigError(f"cannot read the configuration {path}: {error.strerror or error}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is no TOML: {error}") from error
        table = table.get("kraftlib", table)
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: kraftlib={table!r} must be a table")
        return cls._with_environment(table, where=str(path), base=path.parent)

    @classmethod
    def _with_environment(cls, table: Mapping[str, object], *, where: str, base: Path | None = None) -> RaftConfig:
        """Build from the plain values of a file, after the environment has had its say."""
        kinds: dict[str, type[Any]] = {"tls": TlsConfig, "sasl": SaslConfig}
        found = {name: table_from_environment(name, kind) for name, kind in kinds.items()}
        check_others(kinds.keys(), attrs.fields_dict(cls).keys() - kinds.keys())
        merged = dict(table)
        for name, options in found.items():
            own = table.get(name, {})
            if options and isinstance(own, Mapping):
                merged[name] = {**own, **options}
        try:
            return cls.from_mapping(merged, where=where, base=base)
        except ConfigError as error:
            if not any(found.values()):
                raise
            raise ConfigError(f"{error} (set in the environment: {names_set(found)})") from error

    @classmethod
    def from_properties(cls, source: str | Path | Mapping[str, str], *, tell: Tell | None = None) -> RaftConfig:
        """Read Kafka's own `server.properties`, of a controller or of a broker that is to be followed as an observer.

        `source` is a file, or properties that were read already. Every key without effect is reported to `tell`
        with the reason, one call a key; without it they go to the log of this module, at WARNING. Paths are taken as
        they stand, as in Kafka. Keys that are left out have kraftlib's defaults. Environment variables take the place
        of options of `[tls]` and `[sasl]` (`kraftlib.environment`).
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
            config = cls._with_environment(settings.fields, where=where)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        for word in settings.words:
            (tell or logger.warning)(f"{where}: {word}")
        return config

    @classmethod
    def from_mapping(
        cls, table: Mapping[str, object], *, where: str = "configuration", base: Path | None = None
    ) -> RaftConfig:
        """Build from plain values (text, numbers, lists, tables), as a TOML table has them.

        `where` names their source in errors. Relative paths are below `base`; None: below the working directory.
        """
        fields = types_of(cls)
        unknown = sorted(set(table) - set(fields))
        if unknown:
            raise ConfigError(f"{where}: unknown key {unknown[0]!r}; {nearest(unknown[0], fields)}")
        if "node_id" not in table:
            raise ConfigError(f"{where}: node_id is missing")
        base = base or Path()
        values = {name: from_plain(name, value, fields[name], base) for name, value in table.items()}
        return cls(**values)


_COMPOUND: Final = frozenset("voters bootstrap_servers upstreams listen advertised tls sasl limits access".split())


def _taking_plain_values(init: Callable[..., None]) -> Callable[..., None]:
    """Return `init` of RaftConfig that takes the forms of a file, too, and suggests the nearest option."""

    known = types_of(RaftConfig)

    @functools.wraps(init)
    def checked(self: RaftConfig, **options: object) -> None:
        for name in options:
            if name not in known:
                raise ConfigError(f"RaftConfig has no option {name!r}; {nearest(name, known)}")
        for name in _COMPOUND.intersection(options):
            options[name] = from_plain_or_built(name, options[name], known[name])
        init(self, **options)

    return checked


RaftConfig.__init__ = _taking_plain_values(RaftConfig.__init__)  # type: ignore[method-assign]
