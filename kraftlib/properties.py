"""Kafka's own configuration, `server.properties`: its keys for a replica, and why each other key has no effect.

A file of a Kafka controller names the voters, their addresses and their timeouts, and a replica needs no more. The rest
is about brokers, topics and threads of the JVM; none of it is passed over in silence, because a
setting that has no effect is a surprise later. An option that cannot be obeyed safely (Kerberos, ZooKeeper) is an
error.

A key of ours that the file leaves out keeps kraftlib's default, which differs from Kafka's in `append_linger_ms` (0
instead of 25). Source: `KafkaConfig` of 3.9 to 4.3; the file format is that of `java.util.Properties`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from kraftlib.errors import ConfigError
from kraftlib.sasl_properties import sasl_properties
from kraftlib.security.access import of_super_users
from kraftlib.tls_properties import tls_properties
from kraftlib.types import Endpoint

ROLES: Final = frozenset({"controller", "broker"})
PROTOCOLS: Final = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
ANYWHERE: Final = "0.0.0.0"
WILDCARDS: Final = ("", ANYWHERE, "::")

NUMBERS: Final[Mapping[str, str]] = {
    "controller.quorum.election.timeout.ms": "election_timeout_ms",
    "controller.quorum.election.backoff.max.ms": "election_backoff_max_ms",
    "controller.quorum.fetch.timeout.ms": "fetch_timeout_ms",
    "controller.quorum.fetch.max.bytes": "fetch_max_bytes",
    "controller.quorum.fetch.snapshot.max.bytes": "snapshot_max_bytes",
    "controller.quorum.request.timeout.ms": "request_timeout_ms",
    "controller.quorum.retry.backoff.ms": "retry_backoff_ms",
    "controller.quorum.append.linger.ms": "append_linger_ms",
    "metadata.log.segment.bytes": "segment_bytes",
    "metadata.log.segment.ms": "segment_ms",
    "metadata.log.max.record.bytes.between.snapshots": "snapshot_interval_bytes",
    "metadata.log.max.snapshot.interval.ms": "snapshot_interval_ms",
    "metadata.max.retention.bytes": "retention_bytes",
    "metadata.max.retention.ms": "retention_ms",
    "internal.metadata.max.batch.size.in.bytes": "batch_max_bytes",
    "socket.request.max.bytes": "frame_max_bytes",
}
"""Keys that are one number, and the field of RaftConfig that it goes to."""

LIMITS: Final[Mapping[str, str]] = {
    "max.connections": "connections_max",
    "max.connections.per.ip": "connections_per_address_max",
    "connections.max.idle.ms": "idle_max_ms",
}
"""Keys that are one number, and the field of TcpLimits that it goes to."""

NUMBER_MAX: Final = 2**31 - 1

OTHERS: Final = frozenset(
    "process.roles node.id broker.id listeners advertised.listeners listener.security.protocol.map log.dir log.dirs "
    "metadata.log.dir controller.listener.names controller.quorum.voters controller.quorum.bootstrap.servers "
    "controller.quorum.auto.join.enable super.users".split()
)
"""Keys that are read in another way."""

ALL_KEYS: Final = frozenset({*NUMBERS, *LIMITS, *OTHERS})
SECURITY: Final = r"(ssl|sasl|listener\.name)\."

NOT_OURS: Final[tuple[tuple[str, str], ...]] = (
    (r"metadata\.max\.idle\.interval\.ms", "kraftlib writes no NoOpRecord into an idle log"),
    (
        r"internal\.metadata\..*|metadata\.log\.segment\.min\.bytes",
        "a setting of Kafka's own tests; kraftlib's limits are those of RaftConfig",
    ),
    (r"ssl\..*", "no effect on a listener that is not SSL, or not one of the keys of a PEM store that become [tls]"),
    (r"(sasl|security|oauth|principal|delegation)\..*", "the controller listener does not use it"),
    (
        r"(authorizer|allow\.everyone|early\.start).*",
        "kraftlib has no ACLs; principals have roles: see `access` of RaftConfig",
    ),
    (r"(metric|metrics|auto\.include\.jmx|kafka\.metrics|client\.telemetry).*", "metrics are RaftClient.metrics()"),
    (
        r"(num\.(network|io|replica|recovery)|background|queued|socket|connection|connections|max\.connection).*",
        "threads and sockets are arranged otherwise: see `engine`, `flush` and `event_loop` of RaftConfig",
    ),
    (
        r"(broker|initial\.broker|unstable|server|controller|leader|node|config\.providers).*",
        "of the controller on top of the log, or of its brokers; kraftlib carries the log",
    ),
    (
        r"(log|num|offsets?|transaction|transactional|group|share|consumer|producer|replica|replication|topic|topics|"
        r"auto|default|min|max|message|compression|delete|fetch|unclean|quota|alter|quorum|request|remote|inter|"
        r"reserved|rack|create|zstd|record|eligible|errors|telemetry|streams|advertised|host|port|enable|"
        r"follower|password)\..*",
        "a broker's; kraftlib is none",
    ),
)
"""Notices for keys that match a pattern; the first match counts."""

UNKNOWN: Final = "kraftlib knows no such key of Kafka's"
SLIP: Final = 0.96
"""Similarity above which a key is a misspelt one. Kafka's own keys resemble each other less."""
LISTED: Final = 65_536
"""Longest file, in lines."""


@attrs.frozen
class Word:
    """The notice for one key."""

    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.key}: {self.text}"


@attrs.define
class Settings:
    """The contents of a file: fields of RaftConfig, and notices about all other keys."""

    fields: dict[str, object] = attrs.Factory(dict)
    access: dict[str, Any] = attrs.Factory(dict)
    """The table `[access]`, from several keys."""
    words: list[Word] = attrs.Factory(list)
    read: set[str] = attrs.Factory(set)
    """Keys that have an effect here, and in other files do not."""

    def say(self, key: str, text: str) -> None:
        """Add a word."""
        self.words.append(Word(key, text))


# The file format ----------------------------------------------------------------------------------


def parse_properties(text: str) -> dict[str, str]:
    """Read the text of a properties file, by the rules of `java.util.Properties`; of a key given twice the last counts.

    Raises: ConfigError for a bad Unicode escape, or a file that is too long to be one.
    """
    found = {}
    for number, line in enumerate(_logical_lines(text)):
        if number > LISTED:
            raise ConfigError(f"a properties file of more than {LISTED} lines")
        match = re.match(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
        if match is not None and match[1]:
            found[_unescape(match[1])] = _unescape(match[2]).strip()
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments and blank ones; one that ends in an odd number of backslashes goes on."""
    held = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = held + natural.lstrip(" \t\f")
        if not held and (not line or line[0] in "#!"):
            continue
        ends = re.search(r"\\*\Z", line)
        if ends is not None and len(ends[0]) % 2:
            held = line[:-1]
        else:
            held = ""
            yield line
    if held:
        yield held


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        if not code.startswith("u"):
            return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(code, code)
        if len(code) != len("u0000"):
            raise ConfigError(f"{text!r} has a bad escape: expected \\u and four hexadecimal digits")
        return chr(int(code[1:], 16))

    return re.sub(r"\\(u[0-9a-fA-F]{0,4}|.)", plain, text, flags=re.DOTALL)


# The settings that it holds --------------------------------------------------------------------------


def settings_of(properties: Mapping[str, str]) -> Settings:
    """Return what these properties mean for a replica.

    Raises: ConfigError if it is no configuration of a KRaft node, for wrong values, and for security that kraftlib
    lacks.
    """
    found = Settings()
    _check_placeholders(properties)
    roles = _roles(properties)
    found.fields["node_id"] = _node_id(properties)
    _directory(properties, found)
    _quorum(properties, found)
    _listener(properties, found, is_controller="controller" in roles)
    for key, field in NUMBERS.items():
        if key in properties:
            found.fields[field] = _number(key, properties[key])
    if limits := {field: _limit(key, properties[key]) for key, field in LIMITS.items() if key in properties}:
        found.fields["limits"] = limits
    supers: dict[str, Any] = of_super_users(properties.get("super.users", ""))
    for name, value in supers.items():
        found.access[name] = value if isinstance(value, str) else [*found.access.get(name, []), *value]
    if found.access:
        found.fields["access"] = found.access
    if "broker" in roles:
        found.say("process.roles", "kraftlib is no broker: this replica carries the metadata log and nothing else")
    for key in properties:
        if key not in NUMBERS and key not in LIMITS and key not in OTHERS and key not in found.read:
            found.say(key, word_on(key))
    return found


def word_on(key: str) -> str:
    """Return why this key, which is not ours, has no effect; for a likely slip of the pen the key that is meant."""
    if near := difflib.get_close_matches(key, [*NUMBERS, *LIMITS, *OTHERS], n=1, cutoff=SLIP):
        return f"{UNKNOWN}; did you mean {near[0]}?"
    return next((text for pattern, text in NOT_OURS if re.fullmatch(pattern, key)), UNKNOWN)


def _roles(properties: Mapping[str, str]) -> frozenset[str]:
    old = sorted(key for key in properties if key.startswith("zookeeper."))
    roles = frozenset(_list(properties.get("process.roles", "")))
    if not roles:
        hint = f"{old[0]} is of a cluster with ZooKeeper; kraftlib" if old else "a KRaft node has it, and kraftlib"
        raise ConfigError(f"process.roles is missing: {hint} speaks with KRaft controllers only (Kafka 3.9 and later)")
    if not roles <= ROLES:
        raise ConfigError(f"process.roles={properties['process.roles']!r} must be controller, broker, or both")
    return roles


def _check_placeholders(properties: Mapping[str, str]) -> None:
    """Refuse a value of ours that a config provider of Kafka's would replace: as it stands it means nothing."""
    for provider in _list(properties.get("config.providers", "")):
        for key, value in properties.items():
            if f"${{{provider}:" in value and (key in ALL_KEYS or re.match(SECURITY, key)):
                raise ConfigError(f"{key}={value!r}: kraftlib has no config.providers; write the value itself")


def _node_id(properties: Mapping[str, str]) -> int:
    given = {key: _number(key, properties[key]) for key in ("node.id", "broker.id") if key in properties}
    if not given:
        raise ConfigError("node.id is missing")
    if len(set(given.values())) > 1:
        raise ConfigError(f"node.id={given['node.id']} and broker.id={given['broker.id']} must be the same")
    return next(iter(given.values()))


def _directory(properties: Mapping[str, str], found: Settings) -> None:
    """The log is in `metadata.log.dir`, else in the first of `log.dirs`, else in that of `log.dir`."""
    several = _list(properties.get("log.dirs", "")) or _list(properties.get("log.dir", ""))
    place = properties.get("metadata.log.dir") or (several[0] if several else "")
    if place:
        found.fields["directory"] = place
    others = [name for name in several if name != place]
    if others:
        found.say("log.dirs", f"kraftlib uses {place}; {', '.join(others)} would be a broker's")


def _quorum(properties: Mapping[str, str], found: Settings) -> None:
    for key, field in (
        ("controller.quorum.voters", "voters"),
        ("controller.quorum.bootstrap.servers", "bootstrap_servers"),
    ):
        if properties.get(key):
            found.fields[field] = properties[key]
    if not {"voters", "bootstrap_servers"} & found.fields.keys():
        raise ConfigError(
            "neither controller.quorum.voters nor controller.quorum.bootstrap.servers is set: name voters or servers"
        )
    join = properties.get("controller.quorum.auto.join.enable", "false").lower()
    if join not in ("true", "false"):
        raise ConfigError(f"controller.quorum.auto.join.enable={join!r} must be true or false")
    if join == "true":
        found.fields["auto_join"] = True


def _listener(properties: Mapping[str, str], found: Settings, *, is_controller: bool) -> None:
    """Where the first controller listener is, and how it is reached; a broker has none of its own."""
    names = _list(properties.get("controller.listener.names", ""))
    if not names:
        raise ConfigError("controller.listener.names is missing: it names the listener that replicas use")
    name = names[0].upper()
    if len(names) > 1:
        found.say("controller.listener.names", f"replicas use {name}, the first one; kraftlib has no others")
    found.fields["listener_name"] = name
    protocol = _protocol(properties, name)
    has_plain = protocol.startswith("SASL") and _sasl(properties, found, name)
    if protocol.endswith("SSL"):
        _tls(properties, found, name)
    if not is_controller:
        return
    own = _places("listeners", properties)
    if name not in own:
        raise ConfigError(f"listeners={properties.get('listeners', '')!r} has no {name}, of controller.listener.names")
    for other in sorted(own.keys() - {name}):
        found.say("listeners", f"{other} is not served: kraftlib has no clients of a broker")
    host, port = own[name]
    found.fields["listen"] = str(Endpoint(host or ANYWHERE, port))
    in_the_clear = protocol == "PLAINTEXT" or (protocol == "SASL_PLAINTEXT" and has_plain)
    found.fields["insecure"] = in_the_clear  # the file says so, for all interfaces that it names
    host, port = _places("advertised.listeners", properties).get(name, (host, port))
    if host not in WILDCARDS:
        if port:  # else: any free one, known once it is bound
            found.fields["advertised"] = str(Endpoint(host, port))
        return
    own_entry = re.search(rf"(?:^|,)\s*{found.fields['node_id']}@([^,\s]+)", str(found.fields.get("voters", "")))
    if own_entry is None:
        raise ConfigError(f"advertised.listeners must name the host of {name}: no replica can connect to {host!r}")
    found.fields["advertised"] = own_entry[1]


def _sasl(properties: Mapping[str, str], found: Settings, name: str) -> bool:
    """Read users and mechanisms; return whether passwords are sent as they are."""
    sasl = sasl_properties(properties, name)
    found.fields["sasl"], found.access = sasl.sasl, sasl.access
    found.read |= sasl.read
    return sasl.has_plain


def _tls(properties: Mapping[str, str], found: Settings, name: str) -> None:
    tls = tls_properties(properties, name)
    found.fields["tls"] = tls.table
    found.read |= tls.read
    for key, text in tls.words.items():
        found.say(key, text)


def _protocol(properties: Mapping[str, str], name: str) -> str:
    """Return the security protocol of a listener: from the map, else from its name, else PLAINTEXT."""
    protocols = {}
    for pair in _list(properties.get("listener.security.protocol.map", "")):
        listener, _, protocol = pair.partition(":")
        protocols[listener.strip().upper()] = protocol.strip().upper()
    named = {each.partition(":")[0].upper() for each in _list(properties.get("listeners", ""))}
    if name not in protocols and name not in PROTOCOLS and (protocols or (named & PROTOCOLS) - {"PLAINTEXT"}):
        raise ConfigError(f"listener.security.protocol.map has no protocol for {name}, of controller.listener.names")
    protocol = protocols.get(name, name if name in PROTOCOLS else "PLAINTEXT")
    if protocol not in PROTOCOLS:
        raise ConfigError(f"listener.security.protocol.map: {protocol!r} of {name} must be one of {sorted(PROTOCOLS)}")
    return protocol


def _places(key: str, properties: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """Return host and port of each listener by name; an empty host stays empty."""
    places = {}
    for text in _list(properties.get(key, "")):
        match = re.fullmatch(r"([\w-]+)://(?:\[([^\[\]]+)\]|([^:\[\]]*)):([0-9]{1,5})", text, re.ASCII)
        if match is None or int(match[4]) > 65_535:
            raise ConfigError(f"{key}: {text!r} is no listener: expected NAME://host:port")
        if match[1].upper() in places:
            raise ConfigError(f"{key}: {match[1]} stands there twice")
        places[match[1].upper()] = (match[2] or match[3] or "", int(match[4]))
    return places


def _number(key: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,19}", text.strip(), re.ASCII):
        raise ConfigError(f"{key}={text!r} must be a whole number")
    return int(text)


def _limit(key: str, text: str) -> int:
    """Return the number of a limit; a negative one is none (Kafka's `connections.max.idle.ms`)."""
    number = _number(key, text)
    return min(number, NUMBER_MAX) if number >= 0 else NUMBER_MAX


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
