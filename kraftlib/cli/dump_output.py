"""The two forms of a dump: Kafka's text, and JSON with the same names in snake case, one object a batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol, TextIO

from kraftlib.cli.dump_batches import FoundBatch, InvalidTail
from kraftlib.cli.dump_values import Decoder, control_text, describe, payload_text
from kraftlib.records.record import Record


class Output(Protocol):
    """Takes what is found in the order in which it is found."""

    def begin(self, name: str) -> None:
        """Begin a file, named as on the command line."""
        ...

    def heading(self, text: str) -> None:
        """Take what the name of the file says."""
        ...

    def begin_batch(self, batch: FoundBatch) -> None:
        """Take the header of a batch; its records follow."""
        ...

    def record(self, batch: FoundBatch, record: Record) -> str:
        """Take a record of the batch; return why its value cannot be decoded, where that is damage."""
        ...

    def unreadable(self, error: Exception) -> None:
        """Take note that the rest of the batch cannot be decoded."""
        ...

    def end_batch(self) -> None:
        """End the batch."""
        ...

    def invalid_tail(self, path: Path, tail: InvalidTail) -> None:
        """Take note of the bytes at the end that are no batches."""
        ...

    def entry(self, **fields: int) -> None:
        """Take an entry of an index or of a producer snapshot; the names are in snake case."""
        ...


class TextOutput:
    """The text of `kafka-dump-log`."""

    def __init__(self, out: TextIO, decoder: Decoder, *, skip_record_metadata: bool = False) -> None:
        self._write = out.write
        self._decoder = decoder
        self._skip = skip_record_metadata

    def begin(self, name: str) -> None:
        """See Output."""
        self._write(f"Dumping {name}\n")

    def heading(self, text: str) -> None:
        """See Output."""
        self._write(f"{text}\n")

    def begin_batch(self, batch: FoundBatch) -> None:
        """See Output."""
        horizon = batch.delete_horizon_ms
        self._write(
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count} "
            f"baseSequence: {batch.base_sequence} "
            f"lastSequence: {batch.sequence(batch.last_offset - batch.base_offset)} "
            f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
            f"partitionLeaderEpoch: {batch.epoch} isTransactional: {_java(batch.is_transactional)} "
            f"isControl: {_java(batch.is_control)} "
            f"deleteHorizonMs: {'OptionalLong.empty' if horizon is None else f'OptionalLong[{horizon}]'} "
            f"position: {batch.position} {batch.timestamp_type}: {batch.max_timestamp} size: {batch.size} "
            f"magic: {batch.magic} compresscodec: {batch.codec_name} crc: {batch.crc} "
            f"isvalid: {_java(batch.is_valid)}\n"
        )

    def record(self, batch: FoundBatch, record: Record) -> str:
        """See Output."""
        parts = [] if self._skip else [_record_text(batch, record)]
        trouble = ""
        if batch.is_control:
            text, trouble = control_text(record)
            parts += [] if self._skip else [text]
        else:
            if self._decoder is Decoder.TEXT and record.key is not None:
                parts.append(f"key: {record.key.decode(errors='replace')}")
            if record.value is not None or self._decoder is Decoder.METADATA:
                parts.append(f"payload: {payload_text(record, self._decoder)}")
        self._write(f"| {' '.join(parts)}\n" if parts else "\n")
        return trouble

    def unreadable(self, error: Exception) -> None:
        """See Output."""
        self._write(f"| unreadable from here on: {error}\n")

    def end_batch(self) -> None:
        """See Output."""

    def invalid_tail(self, path: Path, tail: InvalidTail) -> None:
        """See Output."""
        self._write(f"Found {tail.size} invalid bytes at the end of {path.name}\n")

    def entry(self, **fields: int) -> None:
        """See Output."""
        self._write(" ".join(f"{_camel(name)}: {value}" for name, value in fields.items()) + "\n")


class JsonOutput:
    """One JSON object a line: a batch with its records, an entry of an index, or an invalid tail."""

    def __init__(self, out: TextIO, decoder: Decoder, *, name_files: bool) -> None:
        self._out = out
        self._decoder = decoder
        self._name_files = name_files
        self._file: dict[str, str] = {}
        self._batch: dict[str, Any] = {}

    def begin(self, name: str) -> None:
        """See Output."""
        self._file = {"file": name} if self._name_files else {}

    def heading(self, text: str) -> None:
        """See Output."""

    def begin_batch(self, batch: FoundBatch) -> None:
        """See Output."""
        self._batch = {
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "count": batch.count,
            "base_sequence": batch.base_sequence,
            "last_sequence": batch.sequence(batch.last_offset - batch.base_offset),
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "partition_leader_epoch": batch.epoch,
            "is_transactional": batch.is_transactional,
            "is_control": batch.is_control,
            "delete_horizon_ms": batch.delete_horizon_ms,
            "position": batch.position,
            "create_time": batch.max_timestamp,
            "timestamp_type": batch.timestamp_type,
            "size": batch.size,
            "magic": batch.magic,
            "compresscodec": batch.codec_name,
            "crc": batch.crc,
            "isvalid": batch.is_valid,
            "records": [],
        }

    def record(self, batch: FoundBatch, record: Record) -> str:
        """See Output."""
        fields, trouble = describe(record, self._decoder, is_control=batch.is_control)
        self._batch["records"].append(
            {
                "offset": record.offset,
                "create_time": record.timestamp,
                "key_size": _size(record.key),
                "value_size": _size(record.value),
                "sequence": batch.sequence(record.offset - batch.base_offset),
                "header_keys": [header.key for header in record.headers],
                **fields,
            }
        )
        return trouble

    def unreadable(self, error: Exception) -> None:
        """See Output."""
        self._batch["error"] = str(error)

    def end_batch(self) -> None:
        """See Output."""
        self._line(self._batch)

    def invalid_tail(self, path: Path, tail: InvalidTail) -> None:
        """See Output."""
        self._line({"invalid_bytes": tail.size, "position": tail.position, "error": tail.reason})

    def entry(self, **fields: int) -> None:
        """See Output."""
        self._line(fields)

    def _line(self, fields: dict[str, Any]) -> None:
        self._out.write(json.dumps({**self._file, **fields}, separators=(",", ":")) + "\n")


def _record_text(batch: FoundBatch, record: Record) -> str:
    return (
        f"offset: {record.offset} {batch.timestamp_type}: {record.timestamp} keySize: {_size(record.key)} "
        f"valueSize: {_size(record.value)} sequence: {batch.sequence(record.offset - batch.base_offset)} "
        f"headerKeys: [{','.join(header.key for header in record.headers)}]"
    )


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _java(value: bool) -> str:
    return "true" if value else "false"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
