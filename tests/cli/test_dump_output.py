"""The forms of a dump, for what no captured file holds: topics' batches with producers, keys, headers, codecs."""

from __future__ import annotations

import io
import json

import attrs

from kraftlib.cli.dump_batches import FoundBatch
from kraftlib.cli.dump_output import JsonOutput, TextOutput
from kraftlib.cli.dump_values import Decoder
from kraftlib.records.batch import APPEND_TIME, DELETE_HORIZON, TRANSACTIONAL
from kraftlib.records.record import Header, Record

BATCH = FoundBatch(
    position=12, size=99, base_offset=5, last_offset=6, count=2, epoch=3, magic=2, crc=4_000_000_000,
    attributes=APPEND_TIME | DELETE_HORIZON | TRANSACTIONAL | 4, base_timestamp=70, max_timestamp=80, producer_id=9,
    producer_epoch=1, base_sequence=30, is_valid=False, data=b"",
)  # fmt: skip
RECORD = Record(6, 80, b"key", None, (Header("h1", b""), Header("h2", None)))


def test_text_of_a_batch_of_a_topic() -> None:
    out = io.StringIO()
    output = TextOutput(out, Decoder.TEXT)
    output.begin_batch(BATCH)
    output.record(BATCH, RECORD)

    assert out.getvalue().splitlines() == [
        "baseOffset: 5 lastOffset: 6 count: 2 baseSequence: 30 lastSequence: 31 producerId: 9 producerEpoch: 1 "
        "partitionLeaderEpoch: 3 isTransactional: true isControl: false deleteHorizonMs: OptionalLong[70] position: 12 "
        "LogAppendTime: 80 size: 99 magic: 2 compresscodec: zstd crc: 4000000000 isvalid: false",
        "| offset: 6 LogAppendTime: 80 keySize: 3 valueSize: -1 sequence: 31 headerKeys: [h1,h2] key: key",
    ]


def test_json_of_a_batch_of_a_topic() -> None:
    out = io.StringIO()
    output = JsonOutput(out, Decoder.TEXT, name_files=False)
    output.begin_batch(BATCH)
    output.record(BATCH, RECORD)
    output.end_batch()
    batch = json.loads(out.getvalue())

    assert (batch["delete_horizon_ms"], batch["is_transactional"], batch["timestamp_type"]) == (
        70,
        True,
        "LogAppendTime",
    )
    assert batch["records"] == [
        {
            "offset": 6, "create_time": 80, "key_size": 3, "value_size": -1, "sequence": 31,
            "header_keys": ["h1", "h2"], "key": "key", "payload": None,
        }
    ]  # fmt: skip


def test_a_codec_that_does_not_exist_is_shown_as_its_number() -> None:
    assert attrs.evolve(BATCH, attributes=7).codec_name == "7"


def test_entries_have_kafkas_names_in_text_and_ours_in_json() -> None:
    out = io.StringIO()
    TextOutput(out, Decoder.TEXT).entry(producer_id=1, last_offset=2)
    JsonOutput(out, Decoder.TEXT, name_files=False).entry(producer_id=1, last_offset=2)

    assert out.getvalue() == 'producerId: 1 lastOffset: 2\n{"producer_id":1,"last_offset":2}\n'
