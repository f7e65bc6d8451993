"""Checks what a client is given, before anything happens: each error names the value and the remedy."""

from __future__ import annotations

import inspect
import random as chance
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from kraftlib.codec.versions import Versions
from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError
from kraftlib.records.serde import RecordSerde
from kraftlib.runtime.client.parts import Parts
from kraftlib.runtime.client.service import Service
from kraftlib.runtime.listener import Listener, StateMachine
from kraftlib.runtime.net.transport import Transport
from kraftlib.storage.interface import QuorumStateStore, ReplicatedLog
from kraftlib.types import Endpoint, ReplicaKey
from kraftlib.validators import check_whole_timeout

ID_MAX: Final = 2**31 - 1
NUMBER_MAX: Final = 2**63 - 1
LISTENER_CALLS: Final = tuple(name for name in vars(Listener) if not name.startswith("_"))
MACHINE_CALLS: Final = tuple(name for name, part in vars(StateMachine).items() if name[0] != "_" and callable(part))

_PROTOCOLS: Final[Mapping[str, type]] = {
    "log": ReplicatedLog,
    "elections": QuorumStateStore,
    "transport": Transport,
    "serde": RecordSerde,
    "result_serde": RecordSerde,
    "service": Service,
}
"""The protocol of each part that has one."""

_CLASSES: Final[Mapping[str, tuple[type, str]]] = {
    "server_ssl": (ssl.SSLContext, "an ssl.SSLContext"),
    "client_ssl": (ssl.SSLContext, "an ssl.SSLContext"),
    "random": (chance.Random, "a random.Random"),
}
"""The class of each part that has one, and its name in an error."""


def check_config(config: object) -> RaftConfig:
    """Return `config`. Raises: ConfigError unless it is a RaftConfig."""
    if isinstance(config, RaftConfig):
        return config
    remedy = "use RaftConfig.from_mapping(...)" if isinstance(config, Mapping) else "make a RaftConfig(...)"
    if isinstance(config, str):
        remedy = "kraftlib.cli reads files; in a program use RaftConfig.from_mapping(tomllib.load(...))"
    raise ConfigError(f"config is {_kind(config)}: {remedy}")


def check_parts(config: object, parts: Parts, listener: object) -> None:
    """Raise ConfigError unless `config` and each part that is given can do what is asked of it."""
    checked = check_config(config)
    for name, protocol in _PROTOCOLS.items():
        if (part := getattr(parts, name)) is not None:
            check_protocol(name, part, protocol)
    for name, (kind, wanted) in _CLASSES.items():
        part = getattr(parts, name)
        if part is not None and not isinstance(part, kind):
            raise ConfigError(f"{name} is {_kind(part)}: expected {wanted}")
    if parts.service is not None:
        check_service(parts.service)
    if parts.authorize is not None:
        check_authorize(parts.authorize)
    if parts.state_machine is not None:
        check_state_machine(parts.state_machine, is_durable=checked.directory is not None)
    if checked.digest_interval_ms:
        from kraftlib.runtime.digests import check_machine  # most replicas compare no states

        check_machine(checked.digest_interval_ms, parts.state_machine)
    if listener is not None:
        check_listener(listener)


def check_state_machine(machine: object, *, is_durable: bool) -> None:
    """Raise ConfigError unless `machine` is a StateMachine, whose methods are plain functions.

    Over a log that `is_durable`, it must be able to write and to read snapshots. One in memory may do without.
    """
    _check_instance("state_machine", machine, StateMachine)
    of = type(machine)
    if of.apply is StateMachine.apply:  # type: ignore[attr-defined]
        raise ConfigError(f"state_machine: {of.__name__} has no apply(record)")
    if is_durable and of.snapshot is StateMachine.snapshot and of.freeze is StateMachine.freeze:  # type: ignore[attr-defined]
        raise ConfigError(
            f"state_machine: {of.__name__} has no snapshot(): without snapshots the log would grow for ever, and "
            f"each start would read all of it; return the values from which restore() rebuilds the state"
        )
    if is_durable and of.restore is StateMachine.restore:  # type: ignore[attr-defined]
        raise ConfigError(f"state_machine: {of.__name__} has no restore(values): it could not read its own snapshots")
    _check_plain("state_machine", machine, MACHINE_CALLS)


def check_listener(listener: object) -> None:
    """Raise ConfigError unless `listener` is a Listener, whose methods are plain functions."""
    _check_instance("listener", listener, Listener)
    _check_plain("listener", listener, LISTENER_CALLS)


def check_service(service: object) -> None:
    """Raise ConfigError unless `service` says which versions it serves, and its methods are plain functions."""
    served = getattr(service, "served", None)
    pairs = served.items() if isinstance(served, Mapping) else [(None, None)]
    for key, versions in pairs:
        if isinstance(key, bool) or not isinstance(key, int) or not isinstance(versions, Versions):
            raise ConfigError(
                f"service: {type(service).__name__}.served is {served!r}: expected a mapping from API keys to "
                f"Versions, such as {{1: Versions(0, 2)}}"
            )
    _check_plain("service", service, ("begin", "end"))


def check_authorize(authorize: object) -> None:
    """Raise ConfigError unless `authorize` is a plain function of a peer and an API key."""
    if not callable(authorize):
        raise ConfigError(f"authorize is {_kind(authorize)}: expected a function of a peer and an API key")
    if inspect.iscoroutinefunction(authorize):
        raise ConfigError("authorize is an `async def`, and every request would be allowed: make it a plain `def`")


def check_key(key: object) -> None:
    """Raise ConfigError unless `key` names a replica and its directory."""
    is_key = isinstance(key, ReplicaKey) and _is_within(key.id, 0, ID_MAX)
    if not is_key or not isinstance(key.directory_id, UUID | None):  # type: ignore[attr-defined]
        raise ConfigError(
            f"key={key!r} is {_kind(key)}: a replica is named by id and directory, as client.key or "
            f"status().voters[0].key are"
        )


def check_endpoints(endpoints: Mapping[str, Any]) -> None:
    """Raise ConfigError unless these are endpoints by the names of listeners."""
    for name, endpoint in endpoints.items():
        is_endpoint = isinstance(endpoint, Endpoint) and isinstance(endpoint.host, str)
        if not isinstance(name, str) or not is_endpoint or not _is_within(endpoint.port, 1, 65_535):
            raise ConfigError(
                f"endpoint={endpoint!r} is {_kind(endpoint)}: expected an Endpoint(host, port) with a port from 1 to "
                f"65535, or several by the name of the listener; parse_endpoint() of kraftlib.types reads a text"
            )


def check_timeout(timeout_ms: object) -> None:
    """Raise ConfigError unless `timeout_ms` is None or a whole number of ms."""
    if timeout_ms is not None:
        check_whole_timeout(timeout_ms, least=0)


def check_number(name: str, value: object) -> None:
    """Raise ConfigError unless an offset, an epoch or an id is an integer of 64 bits."""
    if not _is_within(value, -NUMBER_MAX, NUMBER_MAX):
        raise ConfigError(f"{name}={value!r} is {_kind(value)}: expected an integer of 64 bits")


def check_optional(**numbers: object) -> None:
    """Raise ConfigError unless each of these is None or an integer of 64 bits."""
    for name, value in numbers.items():
        if value is not None:
            check_number(name, value)


def _is_within(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _check_instance(name: str, value: object, wanted: type) -> None:
    if isinstance(value, type):
        raise ConfigError(f"{name}={value.__name__} is a class: make one of it, {value.__name__}(...)")
    if not isinstance(value, wanted):
        raise ConfigError(f"{name} is {_kind(value)}: derive its class from kraftlib.{wanted.__name__}")


def _check_plain(name: str, value: object, methods: Iterable[str]) -> None:
    for method in methods:
        function = getattr(value, method)
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(
                f"{name}: {type(value).__name__}.{method} is an `async def`, and nothing would wait for it: make it "
                f"a plain `def` that does not block, and start what takes long from there"
            )


def check_protocol(name: str, value: object, protocol: type) -> None:
    """Raise ConfigError unless `value` has all that `protocol` asks for."""
    if isinstance(value, type):
        raise ConfigError(f"{name}={value.__name__} is a class: make one of it, {value.__name__}(...)")
    wanted = [*vars(protocol), *inspect.get_annotations(protocol)]
    missing = [each for each in wanted if not each.startswith("_") and not hasattr(value, each)]
    if missing:
        raise ConfigError(f"{name} is {_kind(value)} and lacks {', '.join(missing)} of kraftlib's {protocol.__name__}")


def _kind(value: object) -> str:
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
