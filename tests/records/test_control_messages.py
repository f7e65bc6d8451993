from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlib.codec.declared import Message, read, write
from kraftlib.codec.json_form import to_json
from kraftlib.records.control_messages import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from tests.captured import dumped_records, log_records, logs

BY_TYPE: dict[int, tuple[type[Message], str]] = {
    2: (LeaderChangeMessage, "LeaderChange: "),
    3: (SnapshotHeaderRecord, "SnapshotHeader "),
    4: (SnapshotFooterRecord, "SnapshotFooter "),
    5: (KRaftVersionRecord, "KRaftVersion "),
    6: (VotersRecord, "KRaftVoters "),
}


@pytest.mark.parametrize("path", logs(), ids=lambda path: "/".join(path.parts[-4:]))
def test_every_control_record_that_kafka_wrote_reads_as_its_dump_says_and_is_written_alike(path: Path) -> None:
    dump = dict(dumped_records(path))
    records = {offset: (key, value) for offset, is_control, key, value in log_records(path) if is_control}
    assert records or path.name == "00000000000000000159.log"  # n4 joined late, and nobody was elected since

    for offset, (key, value) in records.items():
        assert key[:2] == b"\0\0"
        cls, text = BY_TYPE[key[3]]
        message = read(cls, value, 0, expect_end=True)
        # 3.9.2 prints the type of a leader change, and nothing of what it holds.
        if not dump[offset].startswith("controlType"):
            assert text + json.dumps(to_json(message, 0), separators=(",", ":")) == dump[offset]
        assert write(message, 0) == value
