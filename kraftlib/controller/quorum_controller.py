"""The controller as a pure state machine: requests and committed records in, records and answers out.

    standby      applied(record, offset)                       folds what is committed
    active       activate -> handle, tick -> appended -> applied
                 deactivate                                    takes back what was not committed

It knows no clock, socket or log. Its driver appends the records of a `Decision` at `next_offset`, calls `appended` with
them at once, so that the next decision knows of them, and sends the answer when they are committed.
`kraftlib.controller.service` drives it with a replica.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from kraftlib.codec.declarations import Message
from kraftlib.controller.access_rules import ResourceType
from kraftlib.controller.apis import SERVED
from kraftlib.controller.configs import BROKER
from kraftlib.controller.context import NOBODY, Caller, Context, ControllerConfig
from kraftlib.controller.delegation_tokens import remove_expired_tokens
from kraftlib.controller.features import ELIGIBLE_LEADER_REPLICAS
from kraftlib.controller.heartbeats import fence_the_silent
from kraftlib.controller.leadership import elect_unclean, prefer
from kraftlib.controller.mutation_quotas import MutationQuotas
from kraftlib.controller.results import RECORDS_MAX, Decision
from kraftlib.controller.sessions import Sessions
from kraftlib.controller.state import ClusterState
from kraftlib.controller.topic_configs import MIN_IN_SYNC, SETTINGS
from kraftlib.controller.versions import METADATA_VERSION, has_controller_registrations
from kraftlib.errors import ensure
from kraftlib.metadata.broker_records import RegisterControllerRecord
from kraftlib.metadata.config_records import ConfigRecord, FeatureLevelRecord
from kraftlib.metadata.log_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from kraftlib.types import Offset
from kraftlib.wire.apis import ErrorCode, error_answer

TRANSACTIONS_SINCE = 13
"""The metadata.version from which on there are transactions of metadata (3.6-IV1, KIP-868)."""


class QuorumController:
    """Decides for a cluster. `levels` are the features with which an empty log begins; `me` registers this node.

    `random` places replicas, `new_uuid` names topics, and `wall_ms` tells the time of day for delegation tokens.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        config: ControllerConfig,
        levels: Mapping[str, int],
        me: RegisterControllerRecord,
        random: random.Random,
        new_uuid: Callable[[], UUID],
        wall_ms: Callable[[], int],
    ) -> None:
        self.state = ClusterState()
        self.is_active = False
        self._cluster_id = cluster_id
        self._config = config
        self._levels = dict(levels)
        self._me = me
        self._random = random
        self._new_uuid = new_uuid
        self._wall_ms = wall_ms
        self._sessions = Sessions(config.broker_session_timeout_ms)
        self._quotas = MutationQuotas()
        self._end_offset: Offset = 0
        """One past the last record that was folded, committed or not."""
        self._committed_end: Offset = 0
        """One past the last one that is known to be committed."""
        self._last_append_ms = 0
        self._last_balance_ms = 0
        self._last_unclean_ms = 0
        self._last_tokens_ms = 0

    # --- records -----------------------------------------------------------------------------------------------------

    def applied(self, record: Message, offset: Offset) -> None:
        """Take a committed record, unless it was folded when it was appended here."""
        if offset >= self._end_offset:
            self.state.replay(record)
            self._end_offset = offset + 1
        self._committed_end = offset + 1
        self.state.committed(offset + 1)

    def appended(self, records: Sequence[Message], base_offset: Offset, now_ms: int) -> None:
        """Take the records of a decision, which are in the log from `base_offset` on and not committed yet."""
        ensure(self.is_active, "only the active controller appends")
        for offset, record in enumerate(records, start=base_offset):
            self.state.replay(record, at=offset)
        self._end_offset = base_offset + len(records)
        self._last_append_ms = now_ms

    def restored(self, state: ClusterState) -> None:
        """Begin anew with the state of a snapshot."""
        self.state = state
        self._end_offset = self._committed_end = 0

    # --- the epoch ---------------------------------------------------------------------------------------------------

    def activate(self, *, now_ms: int, next_offset: Offset) -> Decision:
        """Become the active controller; return the records with which it begins.

        Raises: InvariantError, if a feature is in force that this release does not know: it cannot decide then.
        """
        features = self.state.features
        unsupported = features.unsupported()
        ensure(unsupported is None, f"this release of kraftlib does not support {unsupported}")
        self.is_active = True
        self._last_append_ms = self._last_balance_ms = self._last_unclean_ms = self._last_tokens_ms = now_ms
        self._sessions.clear()
        self._quotas.clear()
        for broker in self.state.cluster.brokers.values():
            if not broker.fenced:
                self._sessions.heard(broker.broker_id, broker.broker_epoch, now_ms)
        records: list[Message] = []
        if self.state.in_transaction:
            records.append(AbortTransactionRecord(reason="Controller failover"))
        if not features.metadata_version:
            records += self._bootstrap()
        level = features.metadata_version or self._levels[METADATA_VERSION]
        is_news = has_controller_registrations(level) and not self._is_registered
        records.append(self._me if is_news else NoOpRecord())
        return Decision(records)

    @property
    def _is_registered(self) -> bool:
        known = self.state.cluster.controllers.get(self._me.controller_id)
        return known is not None and known.incarnation_id == self._me.incarnation_id

    def _bootstrap(self) -> list[Message]:
        records: list[Message] = [
            FeatureLevelRecord(name=name, feature_level=level) for name, level in self._levels.items()
        ]
        if self._levels.get(ELIGIBLE_LEADER_REPLICAS):  # all controllers must know of one and the same size
            size = SETTINGS[MIN_IN_SYNC].default
            records.append(ConfigRecord(resource_type=BROKER, resource_name="", name=MIN_IN_SYNC, value=size))
        if self._levels[METADATA_VERSION] < TRANSACTIONS_SINCE:
            return records
        return [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]

    def deactivate(self) -> None:
        """Become a standby again: changes that are not known to be committed are taken back, and come anew if they
        are."""
        self.is_active = False
        self.state.reset()
        self._sessions.clear()
        self._end_offset = self._committed_end

    # --- decisions ---------------------------------------------------------------------------------------------------

    def handle(
        self, request: Any, version: int, *, now_ms: int, next_offset: Offset, caller: Caller = NOBODY
    ) -> Decision:
        """Decide on a request of one of the APIs in `kraftlib.controller.apis`."""
        if not self.is_active:
            return Decision(answer=error_answer(request, ErrorCode.NOT_CONTROLLER, version=version))
        served, context = SERVED[request.api_key], self._context(now_ms, next_offset, caller)
        if served.needs is not None and not context.allows(served.needs, ResourceType.CLUSTER):
            return Decision(answer=error_answer(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version=version))
        return served.decide(context, request, version)

    def tick(self, *, now_ms: int, next_offset: Offset) -> Decision:
        """Decide what time alone makes necessary. Call it several times a second."""
        if not self.is_active:
            return Decision()
        context = self._context(now_ms, next_offset)
        silent = fence_the_silent(context)
        if silent.records:
            return silent
        config = self._config
        if 0 < config.leader_imbalance_check_interval_ms <= now_ms - self._last_balance_ms:
            self._last_balance_ms = now_ms
            return Decision(list(islice(prefer(context), RECORDS_MAX)))
        if 0 < config.unclean_leader_election_interval_ms <= now_ms - self._last_unclean_ms:
            self._last_unclean_ms = now_ms
            return Decision(list(islice(elect_unclean(context), RECORDS_MAX)))
        if config.delegation_token_secret_key is not None and self._is_time_for_tokens(now_ms):
            return remove_expired_tokens(context)
        if not self._is_registered and has_controller_registrations(self.state.features.metadata_version):
            return Decision([self._me])
        if 0 < config.no_op_interval_ms <= now_ms - self._last_append_ms:
            return Decision([NoOpRecord()])
        return Decision()

    def _is_time_for_tokens(self, now_ms: int) -> bool:
        is_time = now_ms - self._last_tokens_ms >= self._config.delegation_token_expiry_check_interval_ms
        if is_time:
            self._last_tokens_ms = now_ms
        return is_time

    def _context(self, now_ms: int, next_offset: Offset, caller: Caller = NOBODY) -> Context:
        return Context(
            cluster_id=self._cluster_id,
            config=self._config,
            node_id=self._me.controller_id,
            state=self.state,
            sessions=self._sessions,
            quotas=self._quotas,
            random=self._random,
            new_uuid=self._new_uuid,
            now_ms=now_ms,
            wall_ms=self._wall_ms(),
            caller=caller,
            next_offset=next_offset,
        )
