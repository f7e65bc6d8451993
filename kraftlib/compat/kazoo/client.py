"""`KazooClient`: that of kazoo, on another connection."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import kazoo.client
from kazoo.exceptions import ConfigurationError, ConnectionClosedError, UnimplementedError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import Callback, EventType, WatchedEvent

from kraftlib.compat.kazoo.connection import Connection
from kraftlib.coordination.commands import TTL_MS_MAX, TTL_MS_MIN
from kraftlib.coordination.net import client as net
from kraftlib.errors import ClosedError
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.tls import TlsConfig
from kraftlib.types import Endpoint

INTERFACE: Final = (3, 5, 0)
"""The release of ZooKeeper whose operations on nodes there are here."""


class KazooClient(kazoo.client.KazooClient):
    """As `kazoo.client.KazooClient`, whose documentation applies, over `kraftlib.connect`.

    The differences: ACLs and `add_auth` are accepted and have no effect, since a quorum of kraftlib authorizes
    connections and not nodes; `tls` and `sasl` are those of `kraftlib.connect`; a session cannot be taken over by its
    `client_id`; the handler is that of threads. Every read is linearizable, and a lost connection is no event as long
    as another replica answers within a third of `timeout`.
    """

    _connection: Any = None

    def __init__(
        self,
        *values: Any,
        tls: TlsConfig | None = None,
        sasl: SaslConfig | None = None,
        **options: Any,
    ) -> None:
        """Take what kazoo's client takes. Raises: ConfigurationError, ConfigError, for arguments that have no meaning
        here."""
        _check_options(options)
        super().__init__(*values, **options)
        if self._session_id is not None:
            raise ConfigurationError("client_id: a session of kraftlib cannot be taken over; leave it out")
        if not isinstance(self.handler, SequentialThreadingHandler):
            raise ConfigurationError(f"handler={self.handler!r}: only kazoo's SequentialThreadingHandler works here")
        self._tls = _tls(options) if tls is None else tls
        self._sasl = sasl
        if not TTL_MS_MIN <= self._session_timeout <= TTL_MS_MAX:
            raise ConfigurationError(f"timeout={self._session_timeout / 1_000} must be 0.1 to 86400 seconds")
        self._access()  # addresses and files that are wrong are told now
        self._connection = Connection(self, self._access)

    def set_hosts(self, hosts: Any, randomize_hosts: bool | None = None) -> None:
        """Ask these hosts from the next connection on, which are always taken in random order."""
        super().set_hosts(hosts, randomize_hosts)
        if isinstance(self._connection, Connection):
            self._connection.use(self._endpoints())

    def _reset_watchers(self) -> None:
        """Tell all watchers that the connection is lost. Their collections are replaced before: others add to them."""
        lost = [getattr(self, "_child_watchers", {}), getattr(self, "_data_watchers", {})]
        self._child_watchers: Any = defaultdict(set)
        self._data_watchers: Any = defaultdict(set)
        told = WatchedEvent(EventType.NONE, self.client_state, None)
        for watchers in [*lost[0].values(), *lost[1].values()]:
            for watcher in list(watchers):
                self.handler.dispatch_callback(Callback("watch", watcher, (told,)))

    def _call(self, request: Any, async_object: Any) -> Any:
        """Have a request carried out; in a fork of the process refuse it, where kazoo's client waits for ever."""
        try:
            self._connection.check_process()
        except ClosedError as error:
            async_object.set_exception(ConnectionClosedError(str(error)))
            return False
        return super()._call(request, async_object)

    def _endpoints(self) -> list[Endpoint]:
        return [Endpoint(host, port) for host, port in self.hosts]

    def _access(self) -> net.ClientAccess:
        return net.connect(self._endpoints(), tls=self._tls, sasl=self._sasl)

    def command(self, cmd: bytes = b"ruok") -> str:
        """Raises: UnimplementedError. A replica of kraftlib answers `kraftlib status` and its status page."""
        raise UnimplementedError(f"{cmd!r} is a command of ZooKeeper's server: ask a replica with `kraftlib status`")

    def server_version(self, retries: int = 3) -> tuple[int, ...]:
        """Return the release of ZooKeeper whose operations on nodes there are here."""
        return INTERFACE


def _check_options(options: dict[str, Any]) -> None:
    for name, remedy in (
        ("sasl_options", "give sasl=SaslConfig(...)"),
        ("keyfile_password", "give tls=TlsConfig(...) with a key_password_file"),
        ("read_only", "every replica serves reads and writes"),
    ):
        if options.get(name):
            raise ConfigurationError(f"{name} has no meaning for kraftlib: {remedy}")
    if not options.get("verify_certs", True):
        raise ConfigurationError("verify_certs=False: kraftlib verifies every certificate")


def _tls(options: dict[str, Any]) -> TlsConfig | None:
    if not options.get("use_ssl"):
        return None
    return TlsConfig(
        cert=options.get("certfile"),
        key=options.get("keyfile"),
        ca=options.get("ca"),
        check_hostname=bool(options.get("check_hostname", False)),
    )
