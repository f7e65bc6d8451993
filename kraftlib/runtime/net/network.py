"""Translates between frames and messages: chooses versions, matches responses to requests, and refuses bad bytes.

    router --send--> RequestSender --encode--> transport --> peer
    router <--response_received-- decode <--reply-- transport <--
    peer --> transport --> RequestServer --request_received--> router --respond--> encode --> peer

This module joins the two halves, which know nothing of each other, into what the router uses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kraftlib.codec.declarations import Message
from kraftlib.codec.versions import Versions
from kraftlib.config import RaftConfig
from kraftlib.errors import ensure
from kraftlib.records.batch import Batch
from kraftlib.runtime.net.api_versions import SERVED
from kraftlib.runtime.net.identity import Identities
from kraftlib.runtime.net.judge import Authorize, Judge
from kraftlib.runtime.net.notices import Notices
from kraftlib.runtime.net.receiver import NetworkReceiver
from kraftlib.runtime.net.request_handler import RequestHandler
from kraftlib.runtime.net.request_sender import Identified, RequestSender
from kraftlib.runtime.net.request_server import RequestServer
from kraftlib.runtime.net.transport import Destination, Frame, KnowsVoters, Peer, Reply, TellsRefusals, Transport
from kraftlib.security.access import EVERY_ROLE, AccessConfig, Role, is_loopback_host
from kraftlib.security.audit import AuditLog, Sender
from kraftlib.security.authorizer import NEEDED, Authorizer
from kraftlib.types import Endpoint, ReplicaId
from kraftlib.wire.messages.fetch import FetchResponse

logger = logging.getLogger(__name__)


class Network:
    """Sends and answers messages over a transport.

    `features` returns the levels of the features that are in force (`{"kraft.version": 1}`). `config.access`
    says what a peer may do, and `authorize`, if given, whether it may use an API in addition. `is_voter` says which
    replica ids have a vote; `audit` is told of changes and refusals. Certificates that name a replica must
    be of `cluster_id`, if that is given (`kraftlib.runtime.net.identity`). `served` are the requests that
    `receiver` answers, or the application (`serve`); ApiVersions is answered here. `identified` is told the kind of
    each peer.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        client_id: str,
        receiver: NetworkReceiver,
        config: RaftConfig,
        features: Callable[[], Mapping[str, int]] = dict,
        cluster_id: str | None = None,
        authorize: Authorize | None = None,
        is_voter: Callable[[ReplicaId], bool] = lambda replica_id: True,
        audit: AuditLog | None = None,
        served: Mapping[int, Versions] = SERVED,
        identified: Identified = lambda endpoint, is_controller: None,
    ) -> None:
        self._transport: Final = transport
        self._preferring: Final = transport if isinstance(transport, KnowsVoters) else None
        self._client_id: Final = client_id
        self._receiver: Final = receiver
        self._config: Final = config
        self._features: Final = features
        self._cluster_id: Final = cluster_id
        self._authorize: Final = authorize
        self._is_voter: Final = is_voter
        self._audit: Final = audit or AuditLog(node_id=config.node_id, cluster_id=cluster_id)
        self._served: Final = served
        self._identified: Final = identified
        self._needed: Final[dict[int, Role]] = dict(NEEDED)
        self._judged: Final[set[int]] = set()
        self._handled: Final[set[int]] = set()
        self._sender: RequestSender | None = None
        self._server: RequestServer | None = None
        # These are those of the sender and the server from the start on, so that a message takes no step more.
        self.send: Callable[[int, int, Endpoint, Message], None] = _not_sent
        """Send a request, by its correlation id, to a replica (number >= 0) or a bootstrap server (-2, -3, ...).

        The result is reported with that id. The request fails with UNSUPPORTED_VERSION if the peer serves no version of
        it, or none that can hold it: a pre-vote needs version 2 of Vote. Does nothing before `start`, or after `close`.
        """
        self.respond_records: Callable[[Sequence[int], FetchResponse, Sequence[Batch]], None] = _not_answered
        """Answer Fetches, by their ids, alike, with the bytes of these batches in the one partition.

        Does nothing after `close`.
        """
        self.request_received: Callable[[Frame, Reply, Peer], None] = _hang_up
        """Take a request of a peer (`FrameReceiver`)."""
        self._notices: Notices | None = None

    @property
    def trouble(self) -> Mapping[str, int]:
        """Number of messages of peers that could not be served or read, by kind."""
        return {} if self._notices is None else self._notices.counts

    async def start(self) -> Endpoint:
        """Begin to serve; return where. Raises: ConfigError, as the transport does."""
        ensure(self._notices is None, "a network is started once")
        notices = self._notices = Notices(logger, asyncio.get_running_loop().time)
        self._server = RequestServer(
            self._receiver,
            features=self._features,
            judge=Judge(
                authorizer=self._authorizer(),
                authorize=self._authorize,
                identities=Identities(cluster_id=self._cluster_id, sasl=self._config.sasl),
                handled=self._handled,
            ),
            audit=self._audit,
            served=self._served,
            notices=notices,
            recognized=self._recognized,
        )
        self.respond_records, self.request_received = self._server.respond_records, self._server.request_received
        if isinstance(self._transport, TellsRefusals):
            self._transport.tell_refusals(self._refused)
        endpoint = await self._transport.start(self)
        self._sender = RequestSender(
            self._transport,
            self._receiver,
            client_id=self._client_id,
            silence_s=self._config.request_timeout_ms / 1000,
            notices=notices,
            identified=self._identified,
        )
        self.send = self._sender.send
        return endpoint

    def serve(self, handler: RequestHandler) -> None:
        """Hand the requests of its APIs to `handler` from now on. Called at most once, after `start`."""
        ensure(self._server is not None and not self._handled, "one handler serves requests, and only after the start")
        self._needed.update(handler.roles)
        self._judged.update(handler.judged)
        self._handled.update(handler.served)
        if self._server is not None:
            self._server.serve(handler)

    def _authorizer(self) -> Authorizer:
        config, access = self._config, self._config.access or AccessConfig()
        nobody = access.roles_of_nobody(config.listen.host, insecure=config.insecure)
        if nobody == EVERY_ROLE and not is_loopback_host(config.listen.host):
            logger.warning(
                "replica %d listens on %s and lets every peer do everything: every peer that connects is an "
                "administrator. Set [tls] or [sasl] instead of insecure = true, or [access] anonymous",
                config.node_id,
                config.listen,
            )
        return Authorizer(
            access=access,
            nobody=nobody,
            cluster_id=self._cluster_id,
            is_voter=self._is_voter,
            needed=self._needed,
            judged=self._judged,
            bound_ids=config.sasl.replicas_among if config.sasl is not None else lambda principals: (),
            # With SASL the user counts, and a certificate need name no principal.
            unnamed_replicas=config.tls is not None and config.tls.unnamed_replicas and config.sasl is None,
        )

    async def close(self) -> None:
        """Stop sending, answering and reporting; close the transport."""
        if self._sender is not None:
            self._sender.close()
        self._sender = self._server = None
        self.send, self.respond_records, self.request_received = _not_sent, _not_answered, _hang_up
        if self._notices is not None:
            self._notices.summarize(now=True)
            self._audit.summarize(now=True)
        await self._transport.close()

    def voters_at(self, hosts: Iterable[str]) -> None:
        """Tell the transport where the other voters are, if it prefers them to strangers."""
        if self._preferring is not None:
            self._preferring.voters_at(hosts)

    def _recognized(self, peer: Peer, replica_id: ReplicaId) -> None:
        if self._preferring is not None:
            self._preferring.recognized(peer, is_voter=self._is_voter(replica_id))

    def _refused(self, peer: Peer, name: str, reason: str) -> None:
        self._audit.kept_out(name, reason, sender=Sender(principals=peer.principals, address=peer.address))

    def meet(self, destination: int, endpoint: Endpoint) -> None:
        """Connect to a replica, if there is no connection with it yet: it is then identified. Nothing after `close`."""
        if self._sender is not None:
            self._sender.meet(destination, endpoint)

    def respond(self, request_id: int, response: Message | None) -> None:
        """Answer a request; None closes its connection. Does nothing after `close`."""
        if self._server is not None:
            self._server.respond(request_id, response)

    def connection_lost(self, destination: Destination, refused: bool) -> None:
        """Note that a connection of ours is gone."""
        if self._sender is not None:
            self._sender.connection_lost(destination, refused)


def _not_sent(correlation_id: int, destination: int, endpoint: Endpoint, request: Message) -> None:
    """Send nothing: there is no network, or none any more."""


def _not_answered(request_ids: Sequence[int], response: FetchResponse, batches: Sequence[Batch]) -> None:
    """Answer nothing."""


def _hang_up(frame: Frame, reply: Reply, peer: Peer) -> None:
    """Close the connection: there is no server for the request."""
    reply(None)
