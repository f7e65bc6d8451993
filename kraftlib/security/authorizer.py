"""The built-in authorizer: whether a peer may send a request, by the roles of `kraftlib.security.access`.

It denies by default: a request that the table does not name needs a role that no peer has. Which replica ids a
certificate may speak for is decided in `kraftlib.runtime.net.identity`; here it counts where one replica may do for
itself what takes an admin for others.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Final

import attrs

from kraftlib.frozen import define, immutable
from kraftlib.security.access import EVERY_ROLE, INCLUDED, KAFKAS_NOBODY, NO_ROLE, AccessConfig, Role
from kraftlib.security.identity import is_replica_uri, of_certificate, replica_name, why_not
from kraftlib.security.sasl import USER_PREFIX
from kraftlib.security.unix_users import own_principal
from kraftlib.types import ReplicaId
from kraftlib.wire.apis import ApiKey, PrivateApiKey
from kraftlib.wire.messages.fetch import FetchRequest

REMEMBERED_MAX: Final = 1_024

NEEDED: Final[Mapping[int, Role]] = {
    ApiKey.VOTE: Role.REPLICA,
    ApiKey.BEGIN_QUORUM_EPOCH: Role.REPLICA,
    ApiKey.END_QUORUM_EPOCH: Role.REPLICA,
    PrivateApiKey.ELECTION_PRIORITY: Role.REPLICA,
    PrivateApiKey.PROPOSE: Role.REPLICA,
    ApiKey.ADD_RAFT_VOTER: Role.ADMIN,
    ApiKey.REMOVE_RAFT_VOTER: Role.ADMIN,
    ApiKey.UPDATE_RAFT_VOTER: Role.ADMIN,
    ApiKey.UPDATE_FEATURES: Role.ADMIN,
    ApiKey.FETCH: Role.OBSERVER,
    ApiKey.FETCH_SNAPSHOT: Role.OBSERVER,
    PrivateApiKey.READ_BARRIER: Role.OBSERVER,
    PrivateApiKey.SNAPSHOT_HASH: Role.OBSERVER,
    PrivateApiKey.STATE_DIGEST: Role.OBSERVER,
    PrivateApiKey.CALL: Role.WRITER,
    PrivateApiKey.QUERY: Role.CLIENT,
    PrivateApiKey.WATCH: Role.CLIENT,
    ApiKey.DESCRIBE_QUORUM: Role.CLIENT,
    ApiKey.DESCRIBE_CLUSTER: Role.CLIENT,
    # A replica that is no controller refuses these with NOT_CONTROLLER, without reading further.
    ApiKey.CREATE_TOPICS: Role.CLIENT,
    ApiKey.ALTER_PARTITION: Role.CLIENT,
    ApiKey.ENVELOPE: Role.CLIENT,
    ApiKey.BROKER_REGISTRATION: Role.CLIENT,
    ApiKey.BROKER_HEARTBEAT: Role.CLIENT,
    ApiKey.UNREGISTER_BROKER: Role.CLIENT,
    ApiKey.ALLOCATE_PRODUCER_IDS: Role.CLIENT,
    ApiKey.CONTROLLER_REGISTRATION: Role.CLIENT,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Role.CLIENT,
    ApiKey.UNREGISTER_CONTROLLER: Role.CLIENT,
}
"""The role that a request needs, as Kafka's ControllerApis has it; `Authorizer` refines some of it."""

OF_THE_LOG: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
        PrivateApiKey.READ_BARRIER,
        PrivateApiKey.SNAPSHOT_HASH,
        PrivateApiKey.STATE_DIGEST,
    }
)
"""Requests that observers send under their own replica ids, and voters under theirs."""

VOUCHED_FOR: Final = frozenset({Role.ADMIN, Role.CLIENT})
"""The roles that a client can have whose request a broker forwards: the sender of such a request is never a replica,
whatever its name."""

MAY_ASK_MUCH: Final = frozenset({Role.REPLICA, Role.ADMIN, Role.BROKER})
"""The roles whose requests to the application may have as many elements as it takes. Other roles may have few, so that
they cannot keep it busy with requests that it refuses."""

OF_ONE_VOTER: Final = frozenset({ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UPDATE_RAFT_VOTER})

OF_REPLICAS: Final = frozenset(
    {
        *(key for key, role in NEEDED.items() if role in (Role.REPLICA, Role.OBSERVER)),
        ApiKey.UPDATE_RAFT_VOTER,
    }
) - {PrivateApiKey.PROPOSE}
"""Requests that only replicas send, but for Propose, whose sender must hear that nothing was appended. Their refusal
closes the connection, since CLUSTER_AUTHORIZATION_FAILED stops a replica of Kafka, whose configuration is wrong and
nothing else."""


@immutable(kw_only=True)
class Grant:
    """The rights of one peer, from all its principals."""

    roles: frozenset[Role]
    replica_ids: frozenset[ReplicaId] = frozenset()
    """The replicas that its certificate names, or its user is bound to."""
    apis: frozenset[int] = frozenset()
    """The requests that it may send whatever they hold: this is asked with every Fetch."""
    may_speak_as_voter: bool = False
    """Whether REPLICA is among its roles: this, too."""


@define(kw_only=True, eq=False)
class Authorizer:
    """Judges requests of peers.

    `nobody` has the roles of a peer without a principal. `is_voter` says whether a replica id has a vote now.
    `cluster_id` None: certificates of every cluster name replicas. `bound_ids` returns the replica ids that principals
    of other kinds than certificates are bound to; a peer with any of them is a replica.
    """

    access: AccessConfig
    cluster_id: str | None
    nobody: frozenset[Role]
    is_voter: Callable[[ReplicaId], bool]
    bound_ids: Callable[[tuple[str, ...]], Iterable[ReplicaId]] = lambda principals: ()
    needed: Mapping[int, Role] = NEEDED
    judged: Container[int] = ()
    """The requests of clients that the application judges by rules of its own: a broker may forward them for any
    client."""
    unnamed_replicas: bool = False
    """Whether a certificate that names no replica may speak as any (`TlsConfig.unnamed_replicas`)."""
    own_user: str | None = attrs.field(factory=own_principal)
    """The user of this process on a Unix socket, which can read the keys of this replica and may do everything."""
    _grants: dict[tuple[str, ...], Grant] = attrs.field(factory=dict, init=False)

    def complaint(self, principals: tuple[str, ...], request: Any) -> str | None:
        """Return the reason to refuse `request` of a peer with these principals; None if it is allowed."""
        grant = self._grants.get(principals) or self._grant(principals)
        if request.api_key in grant.apis:
            return None
        role = self._needed(request)
        if role in grant.roles or self._concerns_itself(grant, request):
            return None
        return _refusal(role, request, principals)

    def is_replica(self, principals: tuple[str, ...]) -> bool:
        """Whether a peer is a replica by its own certificate or user, and not only by a list."""
        return bool((self._grants.get(principals) or self._grant(principals)).replica_ids)

    def may_ask_much(self, principals: tuple[str, ...]) -> bool:
        """Whether a peer may send the application of this replica large requests: see `MAY_ASK_MUCH`."""
        return not MAY_ASK_MUCH.isdisjoint((self._grants.get(principals) or self._grant(principals)).roles)

    def observes(self, principals: tuple[str, ...], request: Any) -> bool:
        """Whether a request is a Fetch of a peer that may not speak as a voter."""
        if request.api_key != ApiKey.FETCH:
            return False
        return not (self._grants.get(principals) or self._grant(principals)).may_speak_as_voter

    def complaint_of_forwarded(self, principal: str, request: Any, *, broker: tuple[str, ...]) -> str | None:
        """Return the reason to refuse what a broker with these principals forwards for a client; None if it is allowed.

        A client without a name has the rights of its broker if that has none either: it could send the same itself.
        Otherwise it has what the lists give to `User:ANONYMOUS`, which is nothing by default.
        """
        role = self.needed.get(request.api_key)
        if role in self._vouched_for(principal, broker) or request.api_key in self.judged:
            return None
        return _refusal(role, request, (principal,))

    def is_admin(self, principals: tuple[str, ...], *, broker: tuple[str, ...] | None = None) -> bool:
        """Whether a peer has the role admin; one whom a broker names as its client, if `broker` are its principals."""
        if broker is None:
            return Role.ADMIN in (self._grants.get(principals) or self._grant(principals)).roles
        return Role.ADMIN in self._vouched_for(principals[0], broker)

    def _vouched_for(self, principal: str, broker: tuple[str, ...]) -> frozenset[Role]:
        roles = self.access.roles_of(principal)
        if principal == KAFKAS_NOBODY:
            roles = self.access.listed_roles_of(principal) if broker else self.nobody
        return roles & VOUCHED_FOR

    def _grant(self, principals: tuple[str, ...]) -> Grant:
        users = tuple(name for name in principals if name.startswith(USER_PREFIX))
        speaking = users or principals
        roles = NO_ROLE.union(*map(self.access.roles_of, speaking)) if speaking else self.nobody
        if self.own_user in principals:
            roles = EVERY_ROLE
        ids = frozenset(self.bound_ids(principals))
        if ids:
            roles |= INCLUDED[Role.REPLICA]
        names = of_certificate(principals)
        if users:
            roles, ids = self._limited(roles, ids, names)
        elif names and why_not(names, None, cluster_id=self.cluster_id, unnamed=self.unnamed_replicas) is None:
            roles, ids = roles | INCLUDED[Role.REPLICA], ids | self._named(names)
        if len(self._grants) >= REMEMBERED_MAX:
            self._grants.clear()
        apis = frozenset(key for key, role in self.needed.items() if role in roles and _is_for_all_ids(key, roles))
        grant = self._grants[principals] = Grant(
            roles=roles, replica_ids=ids, apis=apis, may_speak_as_voter=Role.REPLICA in roles
        )
        return grant

    def _named(self, names: Iterable[str]) -> frozenset[ReplicaId]:
        replicas = [name for name in map(replica_name, names) if name is not None]
        return frozenset(name.replica_id for name in replicas if self.cluster_id in (None, name.cluster_id))

    def _limited(
        self, roles: frozenset[Role], ids: frozenset[ReplicaId], names: tuple[str, ...]
    ) -> tuple[frozenset[Role], frozenset[ReplicaId]]:
        """Take from a user what the certificate on its connection contradicts: that it is another replica."""
        if not any(map(is_replica_uri, names)):
            return roles, ids
        named = self._named(names)
        readable = why_not(names, None, cluster_id=self.cluster_id, unnamed=False) is None
        if not readable or (ids and not ids & named):
            return roles - {Role.REPLICA}, frozenset()
        return roles, (ids & named if ids else named)

    def _needed(self, request: Any) -> Role | None:
        role = self.needed.get(request.api_key)
        if request.api_key in OF_THE_LOG and self.is_voter(_fetching_id(request)):
            return Role.REPLICA
        return role

    def _concerns_itself(self, grant: Grant, request: Any) -> bool:
        """Whether a replica asks of its own vote: one that names itself may, others only correct endpoints."""
        if request.api_key not in OF_ONE_VOTER or Role.REPLICA not in grant.roles:
            return False
        if grant.replica_ids:
            return request.voter_id in grant.replica_ids
        return bool(request.api_key == ApiKey.UPDATE_RAFT_VOTER)


def _is_for_all_ids(api_key: int, roles: frozenset[Role]) -> bool:
    return api_key not in OF_THE_LOG or Role.REPLICA in roles


def _refusal(role: Role | None, request: Any, principals: tuple[str, ...]) -> str:
    name = "no known role" if role is None else f"the role {role.value}"
    lists = "" if role is None else f" ([access] {role.value}s)"
    who = principals[0] if principals else "a peer without a name"
    return f"{type(request).__name__} needs {name}{lists}, which {who} does not have"


def _fetching_id(request: Any) -> ReplicaId:
    if isinstance(request, FetchRequest):  # one of two fields, by version
        return max(request.replica_id, request.replica_state.replica_id)
    return int(request.replica_id)
