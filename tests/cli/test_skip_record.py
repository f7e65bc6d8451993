"""`kraftlib skip-record`: a quorum whose state machines cannot apply a record goes on without it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kraftlib import RaftConfig, StateMachine, blocking
from kraftlib.errors import ReplicaFailedError
from kraftlib.records.serde import JsonSerde
from kraftlib.runtime.committed import CommittedRecord
from tests.cli.conftest import Command
from tests.ports import free_port
from tests.storage.replicas import make_replica

VOTERS = "1@127.0.0.1:9001,2@127.0.0.1:9002,3@127.0.0.1:9003"


class Sum(StateMachine):
    """Adds numbers; no number is an error."""

    def __init__(self) -> None:
        self.total = 0

    def apply(self, record: CommittedRecord) -> int:
        self.total += record.value
        return self.total

    def snapshot(self) -> Iterable[int]:
        return [self.total]

    def restore(self, values: Iterable[int]) -> None:
        (self.total,) = values


def test_the_quorum_goes_on_without_the_record(
    kraftlib: Command, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kraftlib.audit")
    address = f"127.0.0.1:{free_port()}"
    config = RaftConfig.from_mapping({"node_id": 1, "directory": tmp_path / "1", "listen": address})
    formatted = kraftlib(
        "format", tmp_path / "1", "--node-id", 1, "--cluster-id", "c", "--standalone", "--advertised", address
    )
    assert formatted.status == 0, formatted.err
    with blocking.RaftClient(config, state_machine=Sum(), serde=JsonSerde()) as client:
        client.wait_for_leader(timeout_ms=20_000)
        assert client.propose(2) == 2
        # One batch: what stands beside the record is applied.
        poisoned = client.append([3, "no number", 4])
        with pytest.raises(ReplicaFailedError):
            client.read_barrier()
    bad = poisoned.base_offset + 1
    assert f"it was the record at {bad}" in caplog.text
    result = kraftlib("skip-record", tmp_path / "1", "--offset", bad, "--reason", "ticket 12")
    assert result.status == 0, result.err
    assert f"record {bad} of epoch {poisoned.epoch}, 11 bytes: b'\"no number\"'" in result.out
    for _ in range(2):  # every start leaves it out
        machine = Sum()
        with blocking.RaftClient(config, state_machine=machine, serde=JsonSerde()) as client:
            client.wait_for_leader(timeout_ms=20_000)
            client.read_barrier()
            assert machine.total % 10 == 9
            assert client.propose(10) == machine.total
    assert f"not applied, as an operator wants it: [{bad}]" in caplog.text
    audited = [json.loads(line.message) for line in caplog.records if line.name == "kraftlib.audit"]
    assert ("skip-record", f"offset {bad}", "ticket 12") in [
        (each["request"], each["subject"], each["outcome"]) for each in audited
    ]


def test_it_may_be_repeated_and_is_listed(kraftlib: Command, tmp_path: Path) -> None:
    directory = make_replica(tmp_path / "1", 1, records=10, checkpoint=None)
    for reason in ("first", "second"):
        assert kraftlib("skip-record", directory, "--offset", 3, "--reason", reason).status == 0
    listed: list[dict[str, Any]] = json.loads(kraftlib("skip-record", directory, "--output", "json").out)
    assert [(each["offset"], each["reason"]) for each in listed] == [(3, "second")]


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        (("--offset", 99, "--reason", "x"), 1, "offset=99 is not in the log of"),
        (("--offset", -1, "--reason", "x"), 1, "offset=-1 is not in the log of"),
        (("--offset", 3), 1, "reason='' must say why"),
        (("--reason", "x"), 2, "--reason 'x' needs --offset N"),
    ],
)
def test_what_makes_no_sense_is_refused(
    kraftlib: Command, tmp_path: Path, arguments: tuple[object, ...], status: int, error: str
) -> None:
    directory = make_replica(tmp_path / "1", 1, records=10, checkpoint=None)
    result = kraftlib("skip-record", directory, *arguments)
    assert (result.status, json.loads(kraftlib("skip-record", directory, "--output", "json").out)) == (status, [])
    assert error in result.err


def test_a_directory_of_nobody_is_named(kraftlib: Command, tmp_path: Path) -> None:
    result = kraftlib("skip-record", tmp_path / "nowhere")
    assert result.status == 1
    assert "nowhere is not formatted" in result.err
