"""Kafka's metadata as a fold: the groups of records that belong together, and the effect of each record on those before
it.

A partition's change is a delta on its record; a topic that is removed takes its partitions and its configuration along;
a fenced broker is its registration with one field changed. So the state of a log is no "last value per key", and a
reducer here says so (`kraftlib.analysis.compacting`), whose state is the records of a snapshot.

All records of one topic are one group, its configuration included, which knows it by name only, while all else knows it
by id. The names are therefore looked up first, by `MetadataPlan`, together with transactions that never took effect
(KIP-868): their records are left out. A record that is not known, or does not fit, is an error and never skipped.

A key begins with the rank that its kind has in a checkpoint, so that the order of the keys is one in which the records
can be replayed. Records keep the version in which they were written, or take the first one that can hold what changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from kraftlib.analysis.checkpoint_rows import state_rank
from kraftlib.analysis.compacting import ROWS, check_whole, folded, with_positions
from kraftlib.analysis.reading import read_table
from kraftlib.codec.declarations import Message
from kraftlib.errors import KraftError
from kraftlib.metadata import RecordType, decode_record, encode_record
from kraftlib.metadata.image import LEADER_UNCHANGED
from kraftlib.types import uuid_text

_R = RecordType
PLANNED_BY: Final = (
    _R.TOPIC_RECORD,
    _R.BEGIN_TRANSACTION_RECORD,
    _R.END_TRANSACTION_RECORD,
    _R.ABORT_TRANSACTION_RECORD,
    _R.CLEAR_ELR_RECORD,
)
"""The types of the records that a plan is made of."""

_TOPIC: Final = 2
"""The type of resource that a topic is, in a configuration."""

_NOT_A_STATE: Final = frozenset(
    {"NoOpRecord", "BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"}
)


class FoldError(KraftError):
    """A record of the log does not fit to those before it, so its state cannot be told. Nothing was written."""


@attrs.frozen(kw_only=True)
class MetadataReducer:
    """The meaning of Kafka's metadata records, for `folded` and `kraftlib.spark.jobs.compact.fold`."""

    names: Mapping[UUID, str]
    """The name of every topic that the log ever had."""
    one_group: bool = False
    """Whether all topics are one group: some record is about all of them."""

    def group_of(self, value: bytes) -> bytes:
        """Return what a record is folded with. Raises: FoldError, ProtocolError."""
        record: Any = decode_record(value)[0]
        kind = type(record).__name__
        match kind:
            case "TopicRecord":
                return self._topic(record.name)
            case "PartitionRecord" | "PartitionChangeRecord" | "RemoveTopicRecord":
                if record.topic_id not in self.names:
                    raise FoldError(f"a {kind} is about topic {uuid_text(record.topic_id)}, which the log never made")
                return self._topic(self.names[record.topic_id])
            case "ClearElrRecord":
                return self._topic(record.topic_name)
            case "ConfigRecord" if record.resource_type == _TOPIC:
                return self._topic(record.resource_name)
        return b"" if kind in _NOT_A_STATE else state_key(_subject(record))

    def _topic(self, name: str) -> bytes:
        return b"topics" if self.one_group else b"topic " + name.encode()

    def fold(self, state: dict[bytes, bytes], value: bytes) -> None:
        """Replay one record. Raises: FoldError, ProtocolError."""
        record, version = decode_record(value)
        kind = type(record).__name__
        if kind in _NOT_A_STATE:
            return
        change = _CHANGES.get(kind)
        if change is not None:
            change(state, record)
        elif kind == "ProducerIdsRecord":
            # The owner of its block is forgotten, as Kafka's own snapshots forget it.
            state[state_key(record)] = encode_record(_evolved(record, broker_id=-1, broker_epoch=-1), version)
        elif kind in ("RegisterBrokerRecord", "RegisterControllerRecord"):
            # Kafka writes them in the order of a hash table: one state is to be the same bytes, in whichever order it
            # was registered.
            features = tuple(sorted(_any(record).features, key=lambda feature: feature.name))
            state[state_key(record)] = encode_record(_evolved(record, features=features), version)
        elif _removes(record):
            state.pop(state_key(record), None)
        else:
            if kind == "PartitionRecord":
                _current(state, _make("TopicRecord", topic_id=_any(record).topic_id), record)
            state[state_key(record)] = value


# Keys ----------------------------------------------------------------------------------------------


def state_key(record: Message) -> bytes:
    """Return the key of a record of a snapshot: its rank, and the fields that tell it from others of its kind."""
    fields = _any(record)
    rank = state_rank(fields.api_key)
    if rank is None:
        raise FoldError(f"a {type(record).__name__} is no part of a state")
    match type(record).__name__:
        case "TopicRecord":
            return _key(rank, fields.topic_id.bytes)
        case "PartitionRecord":
            return _key(rank, fields.topic_id.bytes + _number(fields.partition_id))
        case "RegisterBrokerRecord":
            return _key(rank, _number(fields.broker_id))
        case "RegisterControllerRecord":
            return _key(rank, _number(fields.controller_id))
        case "ConfigRecord":
            return _key(rank, bytes([fields.resource_type & 0xFF]) + _words(fields.resource_name, fields.name))
        case "FeatureLevelRecord":
            return _key(0 if fields.name == "metadata.version" else rank, fields.name.encode())
        case "ClientQuotaRecord":
            parts = sorted(
                (part.entity_type, part.entity_name is not None, part.entity_name or "") for part in fields.entity
            )
            return _key(rank, _words(fields.key, *(f"{kind}={is_named:d}{name}" for kind, is_named, name in parts)))
        case "AccessControlEntryRecord":
            return _key(rank, fields.id.bytes)
        case "UserScramCredentialRecord":
            return _key(rank, _words(fields.name) + _number(fields.mechanism))
        case "DelegationTokenRecord":
            return _key(rank, fields.token_id.encode())
    return _key(rank, b"")


def key_of_value(value: bytes) -> bytes:
    """Return the key of a value of a snapshot, for `merge_chain`. Raises: FoldError, ProtocolError."""
    return state_key(decode_record(value)[0])


def _key(rank: int, rest: bytes) -> bytes:
    return bytes([rank]) + rest


def _number(number: int) -> bytes:
    return (number & 0xFFFFFFFF).to_bytes(4, "big")


def _words(*words: str) -> bytes:
    return b"".join(word.encode() + b"\0" for word in words)


def _any(record: Message) -> Any:
    return record


def _make(kind: str, /, **fields: Any) -> Message:
    import kraftlib.metadata as records

    made: Message = getattr(records, kind)(**fields)
    return made


def _subject(record: Any) -> Message:
    """Return a record of the state, as far as its key goes, that `record` makes, changes or removes."""
    match type(record).__name__:
        case "UnregisterBrokerRecord" | "BrokerRegistrationChangeRecord":
            return _make("RegisterBrokerRecord", broker_id=record.broker_id)
        case "UnregisterControllerRecord":
            return _make("RegisterControllerRecord", controller_id=record.controller_id)
        case "FenceBrokerRecord" | "UnfenceBrokerRecord":
            return _make("RegisterBrokerRecord", broker_id=record.id)
        case "RemoveAccessControlEntryRecord":
            return _make("AccessControlEntryRecord", id=record.id)
        case "RemoveUserScramCredentialRecord":
            return _make("UserScramCredentialRecord", name=record.name, mechanism=record.mechanism)
        case "RemoveDelegationTokenRecord":
            return _make("DelegationTokenRecord", token_id=record.token_id)
    return _any(record)


def _removes(record: Any) -> bool:
    """Whether a record that could stand in a snapshot says that something is no more."""
    match type(record).__name__:
        case "ConfigRecord":
            return record.value is None
        case "FeatureLevelRecord":
            return record.feature_level == 0
        case "ClientQuotaRecord":
            return bool(record.remove)
    return False


# Changes -------------------------------------------------------------------------------------------


def _current(state: dict[bytes, bytes], subject: Message, record: Any) -> tuple[bytes, Any, int]:
    """Return key, record and version of the subject of a record. Raises: FoldError, if there is no such thing."""
    key = state_key(subject)
    if key not in state:
        raise FoldError(f"a {type(record).__name__} is about something that does not exist: {_about(record)}")
    return key, *decode_record(state[key])


def _about(record: Any) -> str:
    names = ("topic_id", "partition_id", "broker_id", "id", "name", "token_id")
    return ", ".join(f"{name}={getattr(record, name)}" for name in names if hasattr(record, name))


def _evolved(record: Any, **fields: Any) -> Message:
    made: Message = attrs.evolve(record, **fields)
    return made


def _remove(state: dict[bytes, bytes], record: Any) -> None:
    key, _, _ = _current(state, _subject(record), record)
    del state[key]


def _change_broker(state: dict[bytes, bytes], record: Any) -> None:
    key, broker, version = _current(state, _subject(record), record)
    changed: dict[str, Any] = {}
    match type(record).__name__:
        case "FenceBrokerRecord":
            changed["fenced"] = True
        case "UnfenceBrokerRecord":
            changed["fenced"] = False
        case _:
            if record.fenced:
                changed["fenced"] = record.fenced > 0
            if record.in_controlled_shutdown:
                changed["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
            if record.log_dirs:
                changed["log_dirs"] = record.log_dirs
            if record.cordoned_log_dirs is not None:
                changed["cordoned_log_dirs"] = record.cordoned_log_dirs
    needed = 4 if "cordoned_log_dirs" in changed else 3 if "log_dirs" in changed else 0
    needed = max(needed, 1 if changed.get("in_controlled_shutdown") else 0)
    state[key] = encode_record(_evolved(broker, **changed), max(version, needed))


def _change_partition(state: dict[bytes, bytes], record: Any) -> None:
    """Take over what is named. A named leader begins a leader epoch; every change begins a partition epoch."""
    subject = _make("PartitionRecord", topic_id=record.topic_id, partition_id=record.partition_id)
    key, partition, version = _current(state, subject, record)
    names = ("isr", "replicas", "removing_replicas", "adding_replicas", "directories")
    changed = {name: value for name in names if (value := getattr(record, name)) is not None}
    for name in ("eligible_leader_replicas", "last_known_elr"):
        value = getattr(record, name)
        if value is not None:
            changed[name] = value or None  # as Kafka writes it: none are not written
    if record.leader != LEADER_UNCHANGED:
        changed |= {"leader": record.leader, "leader_epoch": partition.leader_epoch + 1}
    if record.leader_recovery_state >= 0:
        changed["leader_recovery_state"] = record.leader_recovery_state
    changed["partition_epoch"] = partition.partition_epoch + 1
    needed = 2 if changed.get("eligible_leader_replicas") or changed.get("last_known_elr") else 0
    needed = max(needed, 1 if changed.get("directories") else 0)
    state[key] = encode_record(_evolved(partition, **changed), max(version, needed))


def _remove_topic(state: dict[bytes, bytes], record: Any) -> None:
    key, topic, _ = _current(state, _make("TopicRecord", topic_id=record.topic_id), record)
    partitions = state_key(_make("PartitionRecord", topic_id=record.topic_id))[:-4]
    config = _make("ConfigRecord", resource_type=_TOPIC, resource_name=topic.name, name="")
    configs = state_key(config)[:-1]
    for one in [one for one in state if one == key or one.startswith((partitions, configs))]:
        del state[one]


def _clear_elr(state: dict[bytes, bytes], record: Any) -> None:
    prefix = bytes([state_rank(_R.PARTITION_RECORD) or 0])
    topics = bytes([state_rank(_R.TOPIC_RECORD) or 0])
    ids = {
        _any(topic).topic_id
        for key, value in state.items()
        if key.startswith(topics)
        for topic in [decode_record(value)[0]]
        if record.topic_name in ("", _any(topic).name)
    }
    for key in [key for key in state if key.startswith(prefix) and UUID(bytes=key[1:17]) in ids]:
        partition, version = decode_record(state[key])
        cleared = _evolved(partition, eligible_leader_replicas=None, last_known_elr=None)
        state[key] = encode_record(cleared, version)


_CHANGES: Final[Mapping[str, Callable[[dict[bytes, bytes], Any], None]]] = {
    "UnregisterBrokerRecord": _remove,
    "UnregisterControllerRecord": _remove,
    "RemoveAccessControlEntryRecord": _remove,
    "RemoveUserScramCredentialRecord": _remove,
    "RemoveDelegationTokenRecord": _remove,
    "FenceBrokerRecord": _change_broker,
    "UnfenceBrokerRecord": _change_broker,
    "BrokerRegistrationChangeRecord": _change_broker,
    "PartitionChangeRecord": _change_partition,
    "RemoveTopicRecord": _remove_topic,
    "ClearElrRecord": _clear_elr,
}


# The plan ------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class MetadataPlan:
    """The facts about a log that are needed to fold it in parts."""

    reducer: MetadataReducer
    void: tuple[tuple[int, int], ...]
    """Ranges of positions, from first to last, of transactions that were aborted or not ended."""


def plan_of(rows: Iterable[tuple[int, bytes]]) -> MetadataPlan:
    """Make a plan of position and value of the records whose types are `PLANNED_BY`. Raises: ProtocolError."""
    names: dict[UUID, str] = {}
    void: list[tuple[int, int]] = []
    one_group = False
    begun: int | None = None
    for position, value in sorted(rows):
        record = _any(decode_record(value)[0])
        match type(record).__name__:
            case "TopicRecord":
                names[record.topic_id] = record.name
            case "ClearElrRecord":
                one_group |= not record.topic_name
            case "BeginTransactionRecord":
                begun = position
            case "EndTransactionRecord":
                begun = None
            case "AbortTransactionRecord" if begun is not None:
                void.append((begun, position))
                begun = None
    if begun is not None:
        void.append((begun, 2**63 - 1))
    return MetadataPlan(reducer=MetadataReducer(names=names, one_group=one_group), void=tuple(void))


def metadata_state(path: str | os.PathLike[str], **options: object) -> pa.Table:
    """Return key and value of the state of a Kafka cluster, sorted: the content of a snapshot at the end of the log.

    `options` are those of reading (endOffset, …). Raises: FoldError, ProtocolError; StorageError, ConfigError.
    """
    check_whole(path, **options)
    table = read_table(path, columns=f"{ROWS},type", **{"include": "latest", **options})
    data = table.filter(pc.invert(table["control"]))
    rows = with_positions(table).append_column("type", data["type"])
    planned = rows.filter(pc.is_in(rows["type"], value_set=pa.array([int(kind) for kind in PLANNED_BY], pa.int32())))
    plan = plan_of(zip(planned["position"].to_pylist(), planned["value"].to_pylist(), strict=True))
    for first, last in plan.void:
        inside = pc.and_(pc.greater_equal(rows["position"], first), pc.less_equal(rows["position"], last))
        rows = rows.filter(pc.invert(inside))
    return folded(rows, plan.reducer)
