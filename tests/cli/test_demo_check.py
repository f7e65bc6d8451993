"""What the demo swears by must be able to say no."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlib.cli.demo_check import Disagreement, compare_logs, missing
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import LeaderChangeMessage


def put(number: int) -> bytes:
    return json.dumps({"key": f"key {number}", "value": f"value {number}"}).encode()


def log() -> list[Batch]:
    """Return a log: a leader's first record, then records 1 to 5 in two batches."""
    return [
        encode_control_batch([LeaderChangeMessage(leader_id=1)], timestamp_ms=5, epoch=1),
        encode_batch([put(1), put(2)], timestamp_ms=6, base_offset=1, epoch=1),
        encode_batch([put(3), put(4), put(5)], timestamp_ms=7, base_offset=3, epoch=1),
    ]


ACKNOWLEDGED = {f"key {number}": (f"value {number}", number) for number in range(1, 6)}


def write(directory: Path, *logs: list[Batch]) -> list[Path]:
    paths = []
    for number, batches in enumerate(logs):
        path = directory / str(number)
        path.mkdir()
        (path / f"{0:020}.log").write_bytes(b"".join(bytes(batch.data) for batch in batches))
        paths.append(path)
    return paths


def test_equal_logs_are_counted(tmp_path: Path) -> None:
    compared = compare_logs(write(tmp_path, log(), log(), log()), 6, ACKNOWLEDGED)

    assert (compared.offsets, compared.batches) == (6, 3)


def test_what_is_beyond_the_common_end_does_not_count(tmp_path: Path) -> None:
    """Not committed, and not settled yet."""
    longer = [*log(), encode_batch([put(6)], timestamp_ms=8, base_offset=6, epoch=1)]

    assert compare_logs(write(tmp_path, log(), longer), 6, ACKNOWLEDGED).offsets == 6


def test_a_log_in_two_segments_is_one_log(tmp_path: Path) -> None:
    first, second = write(tmp_path, log(), log()[:2])
    (second / f"{3:020}.log").write_bytes(bytes(log()[2].data))

    assert compare_logs([first, second], 6, ACKNOWLEDGED).offsets == 6


def test_another_byte_is_seen(tmp_path: Path) -> None:
    """Even a timestamp, which says nothing of the records."""
    other = [*log()[:2], encode_batch([put(3), put(4), put(5)], timestamp_ms=8, base_offset=3, epoch=1)]
    with pytest.raises(Disagreement, match="the logs differ from offset 3 on"):
        compare_logs(write(tmp_path, log(), other), 6, ACKNOWLEDGED)


def test_a_missing_end_is_seen(tmp_path: Path) -> None:
    with pytest.raises(Disagreement, match="the logs differ from offset 3 on"):
        compare_logs(write(tmp_path, log(), log()[:2]), 6, ACKNOWLEDGED)
    with pytest.raises(Disagreement, match="the logs end at offset 6, not at 7"):
        compare_logs([tmp_path / "0"], 7, ACKNOWLEDGED)


def test_a_gap_that_all_have_is_seen(tmp_path: Path) -> None:
    holed = [log()[0], log()[2]]
    with pytest.raises(Disagreement, match="batch at offset 3 does not follow offset 1"):
        compare_logs(write(tmp_path, holed, holed), 6, {})


def test_damage_that_all_have_is_seen(tmp_path: Path) -> None:
    paths = write(tmp_path, log(), log())
    for path in paths:
        segment = path / f"{0:020}.log"
        data = bytearray(segment.read_bytes())
        data[-2] ^= 1
        segment.write_bytes(data)
    with pytest.raises(Disagreement, match="is damaged"):
        compare_logs(paths, 6, {})


@pytest.mark.parametrize("wrong", [{"key 9": ("value 9", 5)}, {"key 3": ("other", 3)}, {"key 3": ("value 3", 4)}])
def test_an_acknowledged_record_that_is_not_at_its_offset_is_seen(
    wrong: dict[str, tuple[str, int]], tmp_path: Path
) -> None:
    with pytest.raises(Disagreement, match="was acknowledged at offset"):
        compare_logs(write(tmp_path, log(), log()), 6, wrong)


def test_missing_keys_are_named() -> None:
    items = {"key 1": "value 1", "key 2": "other"}

    assert missing({"key 1": ("value 1", 1)}, items) == []
    assert missing(ACKNOWLEDGED, items) == ["key 2", "key 3", "key 4", "key 5"]
