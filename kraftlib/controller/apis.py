"""The requests that a controller serves: their versions, their senders, and the functions that decide on them.

A test compares the versions with those of Kafka 3.9.2 and 4.3.1. An API that does not stand here is not advertised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from kraftlib.codec.versions import Versions
from kraftlib.controller.access_rules import Operation
from kraftlib.controller.acls import create_acls, delete_acls, describe_acls
from kraftlib.controller.alter_configs import alter_configs, incremental_alter_configs
from kraftlib.controller.alter_partition import alter_partition
from kraftlib.controller.client_quotas import alter_client_quotas
from kraftlib.controller.context import Context
from kraftlib.controller.create_partitions import create_partitions
from kraftlib.controller.create_topics import create_topics
from kraftlib.controller.delegation_tokens import (
    create_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from kraftlib.controller.delete_topics import delete_topics
from kraftlib.controller.describe_configs import describe_configs
from kraftlib.controller.elect_leaders import elect_leaders
from kraftlib.controller.heartbeats import heartbeat
from kraftlib.controller.producer_ids import allocate_producer_ids
from kraftlib.controller.reassignments import alter_partition_reassignments, list_partition_reassignments
from kraftlib.controller.registration import register_broker, register_controller, unregister_broker
from kraftlib.controller.replica_directories import assign_replicas_to_dirs
from kraftlib.controller.results import Decision
from kraftlib.controller.scram_credentials import alter_user_scram_credentials
from kraftlib.controller.update_features import update_features
from kraftlib.security.access import Role
from kraftlib.wire.apis import ApiKey

Decide = Callable[[Context, Any, int], Decision]
"""Takes a request and its version."""


@attrs.frozen
class Served:
    """One API."""

    decide: Decide
    versions: Versions
    role: Role
    forwardable: bool = False
    """Whether a broker forwards it for a client."""
    needs: Operation | None = None
    """The operation on the cluster that rules of access must allow (Kafka's ControllerApis); None: they are asked about
    each resource of the request, or not at all."""


SERVED: Final[Mapping[int, Served]] = {
    ApiKey.CREATE_TOPICS: Served(create_topics, Versions(0, 7), Role.ADMIN, forwardable=True),
    ApiKey.DELETE_TOPICS: Served(delete_topics, Versions(0, 6), Role.ADMIN, forwardable=True),
    ApiKey.DESCRIBE_ACLS: Served(describe_acls, Versions(0, 3), Role.ADMIN, needs=Operation.DESCRIBE),
    ApiKey.CREATE_ACLS: Served(create_acls, Versions(0, 3), Role.ADMIN, forwardable=True, needs=Operation.ALTER),
    ApiKey.DELETE_ACLS: Served(delete_acls, Versions(0, 3), Role.ADMIN, forwardable=True, needs=Operation.ALTER),
    ApiKey.DESCRIBE_CONFIGS: Served(describe_configs, Versions(0, 4), Role.ADMIN),
    ApiKey.ALTER_CONFIGS: Served(alter_configs, Versions(0, 2), Role.ADMIN, forwardable=True),
    ApiKey.CREATE_DELEGATION_TOKEN: Served(create_delegation_token, Versions(0, 3), Role.CLIENT, forwardable=True),
    ApiKey.RENEW_DELEGATION_TOKEN: Served(renew_delegation_token, Versions(0, 2), Role.CLIENT, forwardable=True),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Served(expire_delegation_token, Versions(0, 2), Role.CLIENT, forwardable=True),
    ApiKey.CREATE_PARTITIONS: Served(create_partitions, Versions(0, 3), Role.ADMIN, forwardable=True),
    ApiKey.ELECT_LEADERS: Served(elect_leaders, Versions(0, 2), Role.ADMIN, forwardable=True, needs=Operation.ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Served(incremental_alter_configs, Versions(0, 1), Role.ADMIN, forwardable=True),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Served(
        alter_partition_reassignments, Versions(0, 1), Role.ADMIN, forwardable=True, needs=Operation.ALTER
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Served(
        list_partition_reassignments, Versions(0, 0), Role.CLIENT, forwardable=True, needs=Operation.DESCRIBE
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Served(
        alter_client_quotas, Versions(0, 1), Role.ADMIN, forwardable=True, needs=Operation.ALTER_CONFIGS
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Served(
        alter_user_scram_credentials, Versions(0, 0), Role.ADMIN, forwardable=True, needs=Operation.ALTER
    ),
    ApiKey.ALTER_PARTITION: Served(alter_partition, Versions(0, 3), Role.BROKER),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Served(assign_replicas_to_dirs, Versions(0, 0), Role.BROKER),
    ApiKey.BROKER_REGISTRATION: Served(register_broker, Versions(0, 4), Role.BROKER),
    ApiKey.BROKER_HEARTBEAT: Served(heartbeat, Versions(0, 2), Role.BROKER),
    ApiKey.UNREGISTER_BROKER: Served(
        unregister_broker, Versions(0, 0), Role.ADMIN, forwardable=True, needs=Operation.ALTER
    ),
    ApiKey.UPDATE_FEATURES: Served(
        update_features, Versions(0, 2), Role.ADMIN, forwardable=True, needs=Operation.ALTER
    ),
    ApiKey.ALLOCATE_PRODUCER_IDS: Served(allocate_producer_ids, Versions(0, 0), Role.BROKER),
    ApiKey.CONTROLLER_REGISTRATION: Served(register_controller, Versions(0, 0), Role.REPLICA),
}
"""The APIs on which the controller decides."""

JUDGED: Final = frozenset(key for key, served in SERVED.items() if served.role in (Role.ADMIN, Role.CLIENT))
"""The APIs of clients, on which rules of access decide where `standard_authorizer` is set."""

ENVELOPE_ROLE: Final = Role.BROKER
"""Brokers send envelopes, and vouch for the client that they name."""

OF_THE_REPLICA: Final = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER})
"""The APIs that brokers forward as well, and that the replica answers itself, if the broker may ask for them, too."""

VERSIONS: Final[Mapping[int, Versions]] = {
    ApiKey.ENVELOPE: Versions(0, 0),
    **{key: served.versions for key, served in SERVED.items()},
}
ROLES: Final[Mapping[int, Role]] = {
    ApiKey.ENVELOPE: ENVELOPE_ROLE,
    **{key: served.role for key, served in SERVED.items()},
}
FORWARDABLE: Final[frozenset[int]] = OF_THE_REPLICA | {key for key, served in SERVED.items() if served.forwardable}
