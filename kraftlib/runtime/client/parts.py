"""The parts that an application hands to a client beside its configuration, and the node that is made of them."""

from __future__ import annotations

import random as chance
import ssl
from collections.abc import Callable, Iterable
from typing import Any

from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError, ReplicaFailedError
from kraftlib.frozen import immutable
from kraftlib.records.serde import BytesSerde, RecordSerde
from kraftlib.runtime.client.node import Node
from kraftlib.runtime.client.service import Service
from kraftlib.runtime.listener import Listener, StateMachine
from kraftlib.runtime.net.judge import Authorize
from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.runtime.net.transport import Transport
from kraftlib.runtime.net.trust import trust_of, users_of
from kraftlib.runtime.opening import Opened, listen_endpoint, open_replica
from kraftlib.runtime.waiters import Post
from kraftlib.storage.interface import QuorumStateStore, ReplicatedLog


@immutable(kw_only=True, eq=False)
class Parts:
    """The arguments of `RaftClient`, where each is explained. None: kraftlib's own, or nothing."""

    log: ReplicatedLog | None
    elections: QuorumStateStore | None
    transport: Transport | None
    state_machine: StateMachine | None
    serde: RecordSerde[Any] | None
    result_serde: RecordSerde[Any] | None
    service: Service | None
    server_ssl: ssl.SSLContext | None
    client_ssl: ssl.SSLContext | None
    authorize: Authorize | None
    random: chance.Random | None

    def open_node(
        self,
        config: RaftConfig,
        listeners: Iterable[Listener],
        *,
        post: Post,
        on_failure: Callable[[ReplicaFailedError], None],
        on_closed: Callable[[], None],
    ) -> Node:
        """Open the stores and make the node of them. Where that fails, nothing is left open."""
        if config.sasl is not None and self.transport is not None:
            raise ConfigError("sasl is of the TCP transport: leave out [sasl], or transport=")
        opened = open_replica(config, log=self.log, elections=self.elections)
        try:
            return Node(
                config,
                opened,
                self._transport_of(config, opened),
                serde=BytesSerde() if self.serde is None else self.serde,
                state_machine=self.state_machine,
                listeners=listeners,
                random=self.random or chance.Random(),
                post=post,
                on_failure=on_failure,
                on_closed=on_closed,
                authorize=self.authorize,
                result_serde=self.result_serde,
                service=self.service,
            )
        except BaseException:
            opened.close()
            raise

    def _transport_of(self, config: RaftConfig, opened: Opened) -> Transport:
        # Also where the application brings a transport: a configuration that lets strangers in is refused.
        trust = trust_of(config, opened, server=self.server_ssl, client=self.client_ssl)
        return self.transport or TcpTransport(
            listen_endpoint(config),
            also=() if config.unix_endpoint is None else (config.unix_endpoint,),
            socket_mode=config.unix_socket_mode,
            insecure=config.insecure,
            frame_max_bytes=config.frame_max_bytes,
            limits=config.limits,
            trust=trust,
            sasl=users_of(config, trust),
        )
