"""The roles of principals, and the options of the table `[access]`.

    role      Kafka's operation      may
    replica   CLUSTER_ACTION         vote, lead, fetch as a voter, append by the leader, and correct its own endpoints:
                                     Vote, Begin- and EndQuorumEpoch, Fetch, FetchSnapshot, UpdateRaftVoter, the
                                     private ElectionPriority and Propose; and all that observers and writers may
    admin     ALTER                  change voters and features: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter,
                                     UpdateFeatures; on a controller topics and configurations; and all that clients may
    broker    CLUSTER_ACTION         serve a cluster of a controller: BrokerRegistration, BrokerHeartbeat,
                                     AlterPartition, AllocateProducerIds, and Envelope for clients of its own;
                                     and all that observers may
    observer  DESCRIBE, and the log  fetch under a replica id that is no voter's: Fetch, FetchSnapshot, the private
                                     ReadBarrier and SnapshotHash; and all that clients may
    writer    WRITE                  change the machine that the replica serves: Call; and all that clients may
    client    DESCRIBE               look: DescribeQuorum, DescribeCluster; be told that this is no controller; read the
                                     machine that the replica serves: Query, Watch

A role belongs to a principal (`kraftlib.runtime.net.transport.Peer`). A certificate with the URI
`kraft://CLUSTER/ID` is the replica ID of CLUSTER by itself, and may also add and remove the voter ID (`auto_join`).
Other principals have the roles that the table gives them. An authenticated principal that stands nowhere in it is a
client. ApiVersions needs no role. A peer on a Unix socket is `unix:UID`: that of the replica's own user has every role,
and others have those of the lists only. After SASL the user alone has roles, as in Kafka: a certificate of the same
connection adds none, and takes the role replica away where it names another one.
"""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.errors import ConfigError
from kraftlib.frozen import immutable
from kraftlib.types import UNIX, socket_path

KAFKAS_NOBODY: Final = "User:ANONYMOUS"

PRINCIPAL_MAX: Final = 1_024
"""The longest principal, in characters."""


_PRINCIPAL: Final = re.compile(
    r"User:.+|cert:(?!.*=#)[^=]+=.*|unix:(?:0|[1-9][0-9]{0,9})|(?i:kraft)://[^/]+/[0-9]{1,10}|(?!(?i:kraft):).+://.+"
)
"""A role of a name that no peer has is a role without effect, and the mistake would go unnoticed."""


class Role(enum.Enum):
    """A set of requests that a principal may send; see the table of this module."""

    REPLICA = "replica"
    ADMIN = "admin"
    BROKER = "broker"
    OBSERVER = "observer"
    WRITER = "writer"
    CLIENT = "client"


EVERY_ROLE: Final = frozenset(Role)
NO_ROLE: Final[frozenset[Role]] = frozenset()

INCLUDED: Final = {
    Role.REPLICA: frozenset({Role.REPLICA, Role.OBSERVER, Role.WRITER, Role.CLIENT}),
    Role.ADMIN: frozenset({Role.ADMIN, Role.CLIENT}),
    Role.BROKER: frozenset({Role.BROKER, Role.OBSERVER, Role.CLIENT}),
    Role.OBSERVER: frozenset({Role.OBSERVER, Role.CLIENT}),
    Role.WRITER: frozenset({Role.WRITER, Role.CLIENT}),
    Role.CLIENT: frozenset({Role.CLIENT}),
}
"""A role and the weaker roles that come with it."""

ANONYMOUS: Final = {
    "nothing": NO_ROLE,
    "client": INCLUDED[Role.CLIENT],
    "observer": INCLUDED[Role.OBSERVER],
    "everything": EVERY_ROLE,
}
"""The values of `anonymous`, and the roles that they mean."""


def _names(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value)


def _are_principals(_: object, attribute: attrs.Attribute[Any], value: tuple[Any, ...]) -> None:
    for text in value:
        named = isinstance(text, str) and len(text) <= PRINCIPAL_MAX and text.isprintable()
        if not named or _PRINCIPAL.fullmatch(text) is None:
            raise ConfigError(
                f"{attribute.name}={text!r} is no principal: expected User:NAME (SASL), the URI of a certificate, "
                "cert:CN=NAME,... (the whole subject of a certificate without a URI, as `openssl x509 -noout -subject "
                "-nameopt RFC2253,-esc_msb` shows it) or unix:UID, with the number of a user (`id -u NAME`)"
            )


def _is_a_word_for_nobody(_: object, attribute: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None and value not in ANONYMOUS:
        raise ConfigError(f"{attribute.name}={value!r} must be one of {', '.join(ANONYMOUS)}")


@immutable(kw_only=True)
class AccessConfig:
    """The roles of principals: the table `[access]`. Each list has principals as `Peer.principals` writes them."""

    replicas: tuple[str, ...] = attrs.field(default=(), converter=_names, validator=_are_principals)
    """Principals that may speak as any replica: those of Kafka's controllers, or the SASL user of all replicas."""

    admins: tuple[str, ...] = attrs.field(default=(), converter=_names, validator=_are_principals)
    """Principals that may change voters and features."""

    brokers: tuple[str, ...] = attrs.field(default=(), converter=_names, validator=_are_principals)
    """Principals of brokers that a controller serves. A broker vouches for the clients whose requests it forwards, so
    it can do what any user of `admins` may do to topics and configurations, and never what a replica may."""

    observers: tuple[str, ...] = attrs.field(default=(), converter=_names, validator=_are_principals)
    """Principals that may fetch the log without a vote: those of archives, backups and other followers."""

    writers: tuple[str, ...] = attrs.field(default=(), converter=_names, validator=_are_principals)
    """Principals of clients that may change the machine that the replicas serve (`kraftlib.open`)."""

    clients: tuple[str, ...] = attrs.field(default=(), converter=_names, validator=_are_principals)
    """Principals that may only look. An authenticated principal that stands in no list may do so, too, unless this list
    has names: then only they may."""

    anonymous: str | None = attrs.field(default=None, validator=_is_a_word_for_nobody)
    """The rights of a peer without a principal: `nothing`, `client`, `observer` or `everything`. None: everything if
    this replica listens on loopback or is `insecure`, else nothing."""

    audit_file: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    """The file that audit lines are appended to (`kraftlib.security.audit`). None: they go to the logger only."""

    def roles_of_nobody(self, listen_host: str, *, insecure: bool) -> frozenset[Role]:
        """Return the roles of a peer without a principal at a replica that listens on this host."""
        if self.anonymous is not None:
            return ANONYMOUS[self.anonymous]
        return EVERY_ROLE if insecure or is_loopback_host(listen_host) else NO_ROLE

    def roles_of(self, principal: str) -> frozenset[Role]:
        """Return the roles that the lists give to a principal."""
        # Every user of a machine has a user id, so it takes a list to be more than a nameless peer on a Unix socket.
        is_client = not (self.clients or principal.startswith(UNIX))
        return self.listed_roles_of(principal) or (INCLUDED[Role.CLIENT] if is_client else NO_ROLE)

    def listed_roles_of(self, principal: str) -> frozenset[Role]:
        """Return the roles of the lists that name a principal."""
        lists = (
            (Role.REPLICA, self.replicas),
            (Role.ADMIN, self.admins),
            (Role.BROKER, self.brokers),
            (Role.OBSERVER, self.observers),
            (Role.WRITER, self.writers),
            (Role.CLIENT, self.clients),
        )
        return NO_ROLE.union(*(INCLUDED[role] for role, names in lists if principal in names))


def is_loopback_host(host: str) -> bool:
    """Whether only this machine can reach what listens on `host`. Of names, `localhost` is known; none is looked up."""
    if socket_path(host) is not None:
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def of_super_users(text: str) -> dict[str, object]:
    """Return the table for Kafka's `super.users`, principals between semicolons, which may do everything there.

    Kafka writes the subject of a certificate as `User:CN=NAME,OU=...`, which is `cert:CN=NAME,OU=...` here, and a peer
    without a name as `User:ANONYMOUS`. A broker that forwards a request names its client as Kafka does, so the lists
    of administrators have these names, too.
    """
    names = [name.strip() for name in text.split(";") if name.strip()]
    table: dict[str, object] = {"anonymous": "everything"} if KAFKAS_NOBODY in names else {}
    here, forwarded = [], []
    for name in names:
        subject = re.fullmatch(r"User:([A-Za-z0-9.]+=.*)", name)
        if name != KAFKAS_NOBODY:
            here.append(f"cert:{subject[1]}" if subject is not None else name)
        if name == KAFKAS_NOBODY or subject is not None:
            forwarded.append(name)
    lists = {"replicas": here, "admins": [*here, *forwarded], "brokers": here}
    return table | {role: principals for role, principals in lists.items() if principals}
