"""A controller, Kafka's or ours, that is asked in Kafka's protocol: what it answers, and what it writes.

Names that a controller gives by itself (ids of topics, rules and tokens, epochs of brokers) differ from one to the
next. A topic's id becomes its name, and the others are numbered in the order in which they appear, so that what two
controllers do is compared as plain data. So is the order of rows and records: Kafka has that of a hash map. Times
become hours from now.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import socket
import struct
import time
from typing import Any, Final
from uuid import UUID

import attrs

from kraftlib.codec.declarations import Message, Struct
from kraftlib.codec.declared import write
from kraftlib.controller import ClusterState
from kraftlib.metadata.frame import decode_record
from kraftlib.metadata.log_records import NoOpRecord
from kraftlib.metadata.security_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
)
from kraftlib.metadata.topic_records import RemoveTopicRecord, TopicRecord
from kraftlib.records.batch import read_batches
from kraftlib.types import METADATA_TOPIC_ID, Endpoint
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.frames import decode_response, encode_request
from kraftlib.wire.messages.envelope import DefaultPrincipalData, EnvelopeRequest
from kraftlib.wire.messages.fetch import FetchRequest
from tests.interop.wire import frames

PATIENCE_S: Final = 20.0
OURS_BELOW: Final = 1 << 64
"""Ids below this number are made up by a test, and the same everywhere."""

NOT_COMPARED: Final = frozenset({"throttle_time_ms", "error_message"})
"""Fields of an answer. The words of an error are the business of each implementation."""

SUPER_USER: Final = "ANONYMOUS"
"""Who may do everything: nobody in particular."""

KEY: Final = "the key of the tokens"
SHARE_S: Final = 2.0
"""So long a user waits who has used up a share of a controller's time."""
HOUR_MS: Final = 3_600_000
NEWS: Final = (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
)
"""What Kafka's controller reads in an image that follows its log."""


def secret_of(token_id: str) -> bytes:
    """Return what the owner of a delegation token shows."""
    return hmac.digest(KEY.encode(), token_id.encode(), hashlib.sha512)


class Asked:
    """One controller, and the brokers that somebody pretends to be."""

    def __init__(self, endpoint: Endpoint, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.endpoint = endpoint
        self.ids: dict[UUID, str] = {}
        """What stands for the ids that it has given."""
        self.epochs: list[int] = []
        """The epochs of brokers, likewise."""
        self.state = ClusterState()
        """What its records make of the cluster."""
        self.has_deleted = False
        """Whether a topic was ever deleted."""
        self.tokens: list[str] = []
        """The delegation tokens that there ever were."""
        self.has_news = False
        """Whether there were `NEWS` since somebody cared."""
        self.not_compared: frozenset[str] = frozenset()
        """Settings that answers name on one side only, or with another default."""
        self._read_to = self._read_epoch = self._epoch = 0
        self._correlation_id = 0
        self._socket = socket.create_connection((endpoint.host, endpoint.port), timeout=PATIENCE_S)
        self._frames = frames(self._socket)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def ask(self, request: Any, version: int | None = None) -> Any:
        """Return the answer."""
        version = request.valid_versions.last if version is None else version
        self._correlation_id += 1
        frame = encode_request(request, version=version, correlation_id=self._correlation_id, client_id="lab")
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        answer = next(self._frames, None)
        assert answer is not None, f"the connection ended at {request!r}"
        _, message = decode_response(answer, api_key=request.api_key, version=version)
        return message

    def forwarded(
        self, request: Any, version: int | None = None, *, user: str = SUPER_USER, by_token: bool = False
    ) -> Any:
        """Return the answer to what a broker forwards for a user; that of the envelope, if it says that it is wrong."""
        version = request.valid_versions.last if version is None else version
        frame = encode_request(request, version=version, correlation_id=9, client_id="lab")
        principal = DefaultPrincipalData(type="User", name=user, token_authenticated=by_token)
        who = struct.pack(">h", 0) + write(principal, 0)
        answer = self.ask(EnvelopeRequest(request_data=frame, request_principal=who, client_host_address=bytes(4)))
        if answer.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:  # nothing was decided
            time.sleep(SHARE_S)
            return self.forwarded(request, version, user=user, by_token=by_token)
        if answer.error_code:
            return answer
        return decode_response(answer.response_data, api_key=request.api_key, version=version)[1]

    def written(self) -> list[Message]:
        """Return the records since the last time, but those that say nothing."""
        found: list[Message] = []
        while data := self._fetched():
            batches = read_batches(data, drop_incomplete=True)
            for batch in batches:
                if not batch.is_control:  # control batches are the replica's own
                    found += [decode_record(value)[0] for value in batch.values()]
            self._read_to, self._read_epoch = batches[-1].end_offset, batches[-1].epoch
        for record in found:
            self.state.replay(record)
            self.has_deleted |= isinstance(record, RemoveTopicRecord)
            self.has_news |= isinstance(record, NEWS)
            if isinstance(record, DelegationTokenRecord) and record.token_id not in self.tokens:
                self.tokens.append(record.token_id)
            if isinstance(record, TopicRecord):
                self.ids[record.topic_id] = f"topic {record.name}"
        return [record for record in found if not isinstance(record, NoOpRecord)]

    def _fetched(self) -> bytes:
        row = FetchRequest.FetchPartition(
            fetch_offset=self._read_to, current_leader_epoch=self._epoch, last_fetched_epoch=self._read_epoch
        )
        topic = FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(row,))
        answer = self.ask(
            FetchRequest(cluster_id=self.cluster_id, max_wait_ms=0, max_bytes=1 << 20, topics=(topic,)), 17
        )
        (partition,) = answer.responses[0].partitions
        if partition.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            self._epoch = partition.current_leader.leader_epoch
            return self._fetched()
        assert (answer.error_code, partition.error_code) == (0, 0), (answer.error_code, partition.error_code)
        return bytes(partition.records or b"")

    # --- names -------------------------------------------------------------------------------------------------------

    def plain(self, value: Any) -> Any:
        """Return an answer or a record as data that can be compared."""
        if isinstance(value, Message | Struct):
            fields = (one.name for one in attrs.fields(type(value)))
            return {
                "": type(value).__name__,
                **{name: self._field(name, getattr(value, name)) for name in fields if name not in NOT_COMPARED},
            }
        if isinstance(value, tuple | list):
            rows = [self.plain(one) for one in value if getattr(one, "name", None) not in self.not_compared]
            return sorted(rows, key=repr) if rows and isinstance(rows[0], dict) else rows
        if isinstance(value, UUID) and value.int >= OURS_BELOW:
            return self.ids.setdefault(value, f"id {len(self.ids)}")
        return int(value) if isinstance(value, enum.IntEnum) else value

    def _field(self, name: str, value: Any) -> Any:
        if name == "broker_epoch" and value > 0:
            if value not in self.epochs:
                self.epochs.append(value)
            return f"epoch {self.epochs.index(value)}"
        if name == "port" and value == self.endpoint.port:
            return "of this controller"
        if name == "token_id" and value in self.tokens:
            return f"token {self.tokens.index(value)}"
        if name == "hmac" and value:
            return [number for number, token_id in enumerate(self.tokens) if secret_of(token_id) == value]
        if name.removesuffix("_ms").endswith("timestamp") and value > 0:
            return f"in {round((value - time.time() * 1_000) / HOUR_MS)} hours"
        return self.plain(value)
