"""The base of every decision: the state, the configuration, the time and the place of the next record."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

import attrs

from kraftlib.controller.access_rules import CLUSTER_NAME, Operation, ResourceType
from kraftlib.controller.configs import TOPIC
from kraftlib.controller.features import Features
from kraftlib.controller.mutation_quotas import Account, MutationQuotas
from kraftlib.controller.partitions import Rules
from kraftlib.controller.results import RefusedError
from kraftlib.controller.sessions import Sessions
from kraftlib.controller.state import ClusterState
from kraftlib.controller.topic_configs import MIN_IN_SYNC, check_together, in_force
from kraftlib.errors import ConfigError
from kraftlib.metadata.topic_records import PartitionRecord
from kraftlib.security.sasl import USER_PREFIX
from kraftlib.types import Offset
from kraftlib.wire.apis import ErrorCode

ANONYMOUS: Final = "User:ANONYMOUS"
REFUSALS: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
AT_LEAST_ONE: Final = (
    "num_partitions",
    "default_replication_factor",
    "broker_session_timeout_ms",
    "delegation_token_max_lifetime_ms",
    "delegation_token_expiry_time_ms",
    "delegation_token_expiry_check_interval_ms",
)


@attrs.frozen(kw_only=True)
class ControllerConfig:
    """Timeouts and defaults of a controller, under Kafka's names; the same on all controllers."""

    broker_session_timeout_ms: int = 9_000
    """A broker that is silent for this long is fenced. Brokers send a heartbeat every 2 s by default."""

    unclean_leader_election_interval_ms: int = 300_000
    """The time between two looks for partitions without a leader whose topics allow unclean elections; 0: never."""

    no_op_interval_ms: int = 500
    """A controller that has appended nothing for this long appends a NoOpRecord; 0: never
    (`metadata.max.idle.interval.ms`)."""

    leader_imbalance_check_interval_ms: int = 300_000
    """The time between two checks that make preferred replicas leaders again, where they may lead; 0: never."""

    num_partitions: int = 1
    """Of topics that are created without a number."""

    default_replication_factor: int = 1
    """Of topics that are created without one."""

    delegation_token_secret_key: str | None = attrs.field(default=None, repr=False)
    """The key of the secrets of delegation tokens (`delegation.token.secret.key`), the same on all controllers and
    brokers; None: there are no tokens."""

    delegation_token_max_lifetime_ms: int = 604_800_000
    """The longest life of a token (`delegation.token.max.lifetime.ms`)."""

    delegation_token_expiry_time_ms: int = 86_400_000
    """The time after which a token must be renewed (`delegation.token.expiry.time.ms`)."""

    delegation_token_expiry_check_interval_ms: int = 3_600_000
    """The time between two looks for tokens whose time is over."""

    standard_authorizer: bool = False
    """Whether requests of clients are judged by the rules of access, as Kafka's StandardAuthorizer does; principals
    with the role admin are its super users. Otherwise that role decides alone."""

    allow_everyone_if_no_acl_found: bool = False
    """The judgement where no rule concerns a resource (`allow.everyone.if.no.acl.found`)."""

    remote_log_storage_system_enable: bool = False
    """Whether topics may keep old segments in another storage, which brokers must have then (KIP-405)."""

    def __attrs_post_init__(self) -> None:
        for name in ("no_op_interval_ms", "leader_imbalance_check_interval_ms", "unclean_leader_election_interval_ms"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}={getattr(self, name)} must be 0 (never) or more")
        for name in AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if self.delegation_token_secret_key == "":
            raise ConfigError("delegation_token_secret_key is empty: leave it out, and there are no delegation tokens")
        if self.allow_everyone_if_no_acl_found and not self.standard_authorizer:
            raise ConfigError(
                "allow_everyone_if_no_acl_found has no effect without standard_authorizer: set both or none"
            )


@attrs.frozen(kw_only=True)
class Caller:
    """The sender of a request, as Kafka names it: `User:NAME`."""

    principal: str = ANONYMOUS
    may_have_tokens: bool = False
    """Whether the client is known, and not by a token alone: else it may not ask for a token (KIP-48)."""
    is_admin: bool = False
    """Whether it has the role admin: no rule of access counts for it."""
    host: str = ""
    """Its address, as Kafka writes it in rules of access."""
    is_forwarded: bool = False
    """Whether a broker has sent the request on for it, and has checked its own settings in it."""
    client_id: str = ""
    """The client id in its requests: quotas may be of one."""


NOBODY: Final = Caller()


@attrs.frozen(kw_only=True)
class Context:
    """The state, the moment, and the place of the next record."""

    cluster_id: str
    config: ControllerConfig
    node_id: int
    """Of the controller itself: the settings of this node count where it decides by the configuration of a topic."""
    state: ClusterState
    sessions: Sessions
    quotas: MutationQuotas
    random: random.Random
    new_uuid: Callable[[], UUID]
    now_ms: int
    wall_ms: int
    """The time of day, in milliseconds since 1970."""
    caller: Caller
    next_offset: Offset
    """The offset of the first record of this decision."""

    @property
    def features(self) -> Features:
        """The finalized features."""
        return self.state.features

    def allows(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the sender may do something to a resource, as far as rules of access judge that here."""
        caller, config = self.caller, self.config
        if not config.standard_authorizer or caller.is_admin:
            return True
        return self.state.keyed.rules.allow(
            operation,
            kind,
            name,
            principal=caller.principal,
            host=caller.host,
            if_none=config.allow_everyone_if_no_acl_found,
        )

    def require(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raises: RefusedError with the code of this type of resources, unless the sender may do this."""
        if not self.allows(operation, kind, name):
            raise RefusedError(REFUSALS[kind])

    def account(self, *, is_strict: bool) -> Account:
        """Return the account to which the request's partitions are charged."""
        return self.quotas.account(
            self.state.keyed.mutation_rates,
            user=self.caller.principal.removeprefix(USER_PREFIX),
            client_id=self.caller.client_id,
            is_strict=is_strict,
            now_ms=self.now_ms,
        )

    def topic_value(self, name: str, key: str) -> str:
        """Return the value of a key that is in force for a topic."""
        configs = self.state.configs
        return in_force(configs, configs.of(TOPIC, name), key, node_id=self.node_id)[0]

    def check_topic(self, values: Mapping[str, str]) -> None:
        """Raises: RefusedError with INVALID_CONFIG, if a topic cannot have all of these values together."""
        check_together(
            self.state.configs,
            values,
            node_id=self.node_id,
            has_remote_storage=self.config.remote_log_storage_system_enable,
        )

    def min_in_sync(self, partition: PartitionRecord) -> int:
        """Return the size of an ISR below which nothing is committed: min.insync.replicas, if there are so many."""
        topic = self.state.topics.topics[partition.topic_id]
        first = self.state.topics.partitions[partition.topic_id, 0]
        return min(int(self.topic_value(topic.name, MIN_IN_SYNC)), len(first.replicas))

    def rules(self, *, leaving: int | None = None, returning: int | None = None) -> Rules:
        """Return how partitions change, as if one broker had left already, or come back."""
        cluster = self.state.cluster
        return Rules(
            is_acceptable=lambda id_: id_ != leaving and (id_ == returning or cluster.is_active(id_)),
            metadata_version=self.features.metadata_version,
            directory_of=cluster.default_directory,
            is_online=cluster.is_online,
            min_in_sync=self.min_in_sync if self.features.has_eligible_leader_replicas else None,
        )
