"""Requests of Kafka's brokers to the active controller, and their refusal by a leader that is not a controller.

In a quorum of Kafka's controllers the leader of the log is also the active controller: brokers register with it, send
it heartbeats and their clients' requests. A kraftlib replica that leads for a moment (`RaftConfig.yield_to`) serves
these requests only to refuse them: after NOT_CONTROLLER a broker looks for the controller and asks again, while an API
that is not served is an error that Kafka logs, or a closed connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kraftlib.codec.declarations import Message
from kraftlib.codec.versions import Versions
from kraftlib.config import RaftConfig
from kraftlib.consensus.events import Event, PeerIdentified
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.consensus.voters import VoterSet
from kraftlib.runtime.net.api_versions import PRIVATE, SERVED
from kraftlib.security import before_login
from kraftlib.types import Endpoint, ReplicaId
from kraftlib.wire.apis import ApiKey, ErrorCode, error_answer

REFUSED: Final[Mapping[int, Versions]] = {
    ApiKey.CREATE_TOPICS: Versions(2, 7),  # without it a broker tries in a hot loop to create its own topics
    ApiKey.ALTER_PARTITION: Versions(2, 3),
    ApiKey.ENVELOPE: Versions(0, 0),
    ApiKey.BROKER_REGISTRATION: Versions(0, 4),
    ApiKey.BROKER_HEARTBEAT: Versions(0, 2),
    ApiKey.UNREGISTER_BROKER: Versions(0, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: Versions(0, 0),
    ApiKey.CONTROLLER_REGISTRATION: Versions(0, 0),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Versions(0, 0),
    ApiKey.UNREGISTER_CONTROLLER: Versions(0, 0),
}
"""The versions that a controller of Kafka 4.4 serves."""


def refusal(request: Message) -> Message:
    """Return the answer that makes the client look for the controller."""
    return error_answer(request, ErrorCode.NOT_CONTROLLER)


class Controllers:
    """Notes which peers are controllers of Kafka: that decides which requests are served, and to whom a leader yields.

    `submit` takes events for the core.
    """

    def __init__(self, config: RaftConfig, *, submit: Callable[[Event], None]) -> None:
        self._config: Final = config
        self._submit: Final = submit
        self.served: Final = {
            **SERVED,
            **(PRIVATE if config.private_apis else {}),
            **(before_login.SERVED if config.sasl is not None else {}),
        }
        """The served versions by API. More are served once it is known that there are controllers."""
        self._own: frozenset[int] = frozenset()
        self._voters_met: VoterSet | None = None
        self._places: list[tuple[ReplicaId, Endpoint]] = []
        """Where the other voters of that set are."""
        self._refuse(wanted=bool(config.yield_to))

    def serve(self, served: Mapping[int, Versions]) -> None:
        """The application answers requests of these APIs, so they are never refused."""
        self._own = frozenset(served)
        self.served.update(served)

    def identified(self, endpoint: Endpoint, is_controller: bool) -> None:
        """Take note of the endpoint and kind that a peer has told."""
        self._refuse(wanted=is_controller and self._config.yield_to is None)
        self._submit(PeerIdentified(endpoint, is_controller))

    def meet_voters(self, core: Replica, meet: Callable[[int, Endpoint], None]) -> None:
        """As leader `meet` every voter, to learn whether it is a controller: a follower gets no other request."""
        if self._config.yield_to is not None or core.role is not Role.LEADER:
            return
        voters = core.voters
        if voters is not self._voters_met:
            listener = self._config.listener_name.upper()
            places = {voter.key.id: voter.endpoints.get(listener) for voter in voters.others(core.key)}
            self._voters_met = voters
            self._places = [(voter_id, place) for voter_id, place in places.items() if place is not None]
        for voter_id, place in self._places:
            meet(voter_id, place)

    def _refuse(self, *, wanted: bool) -> None:
        """From now on answer the requests of brokers with NOT_CONTROLLER: they then look for another controller."""
        if wanted:
            self.served.update({key: versions for key, versions in REFUSED.items() if key not in self._own})
