"""Dumps of what real Kafka wrote, compared with what Kafka's own tool said of it; and of damaged copies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlib.cli.dump_batches import FoundBatch, walk
from kraftlib.records.batch import encode_batch
from tests.cli.conftest import Command

DATA = Path(__file__).parents[1] / "data"
CAPTURED = sorted(path.relative_to(DATA) for path in DATA.rglob("*.dump.txt"))
LOG = DATA / "kafka-4.3.1/n1/__cluster_metadata-0/00000000000000000000.log"
CHECKPOINT = DATA / "kafka-4.3.1/n1/__cluster_metadata-0/00000000000000000081-0000000001.checkpoint"


def test_there_is_something_to_compare() -> None:
    assert len(CAPTURED) == 12


@pytest.mark.parametrize("dumped", CAPTURED, ids=str)
def test_the_text_is_what_kafka_prints(dumped: Path, kraftlib: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka was run in the directory of the release, with the path that its first line names."""
    release, expected = DATA / dumped.parts[0], (DATA / dumped).read_text()
    monkeypatch.chdir(release)
    name = expected.splitlines()[0].removeprefix("Dumping ")

    result = kraftlib("dump-log", "--cluster-metadata-decoder", "--files", name)

    assert list(differences(result.out, expected, release=release.name)) == []
    assert (result.status, result.err) == (0, "")


def differences(ours: str, kafkas: str, *, release: str) -> Iterator[tuple[str, str]]:
    for our_line, their_line in zip(ours.splitlines(), kafkas.splitlines(), strict=True):
        if release == "kafka-3.9.2" and their_line.endswith(" controlType: LEADER_CHANGE(2)"):
            # 3.9 does not decode this one; the text before it must be equal all the same.
            our_line = our_line.partition(" LeaderChange: ")[0] + " controlType: LEADER_CHANGE(2)"
        if our_line != their_line:
            yield our_line, their_line


@pytest.mark.parametrize("dumped", CAPTURED, ids=str)
def test_the_json_says_what_the_text_says(dumped: Path, kraftlib: Command) -> None:
    path = DATA / str(dumped).removesuffix(".dump.txt")
    lines = (DATA / dumped).read_text().splitlines()
    texts = [dict(pairs(line)) for line in lines if line.startswith("baseOffset: ")]
    batches = [json.loads(line) for line in kraftlib("dump-log", "--output", "json", path).out.splitlines()]

    for batch, text in zip(batches, texts, strict=True):
        for key, value in text.items():
            assert shown(batch[snake(key)]) == value
        assert len(batch["records"]) == batch["count"]
    records = [record for batch in batches for record in batch["records"]]
    assert [f"offset: {record['offset']} " for record in records] == [
        line.removeprefix("| ")[: line.index("CreateTime") - 2] for line in lines if line.startswith("| ")
    ]


def pairs(line: str) -> Iterator[tuple[str, str]]:
    words = line.split(" ")
    yield from zip((word.removesuffix(":") for word in words[::2]), words[1::2], strict=True)


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "OptionalLong.empty" if value is None else str(value)


def test_json_of_a_metadata_and_of_a_control_record(kraftlib: Command) -> None:
    first, second, *_ = map(json.loads, kraftlib("dump-log", "--output", "json", LOG).out.splitlines())

    assert first["records"][1] == {
        "offset": 1, "create_time": 1795255746971, "key_size": 4, "value_size": 5, "sequence": -1, "header_keys": [],
        "type": "KRAFT_VERSION", "data": {"version": 0, "kRaftVersion": 1},
    }  # fmt: skip
    assert second["records"][1] == {
        "offset": 4, "create_time": 1795255747155, "key_size": -1, "value_size": 23, "sequence": -1, "header_keys": [],
        "payload": {
            "type": "FEATURE_LEVEL_RECORD",
            "version": 0,
            "data": {"name": "metadata.version", "featureLevel": 30},
        },
    }  # fmt: skip
    assert "file" not in first


def test_several_files_are_told_apart(kraftlib: Command) -> None:
    out = kraftlib("dump-log", "--output", "json", "--files", f"{LOG},{CHECKPOINT}").out

    assert {json.loads(line)["file"] for line in out.splitlines()} == {str(LOG), str(CHECKPOINT)}


def test_without_record_metadata_only_values_are_left(kraftlib: Command) -> None:
    lines = kraftlib("dump-log", "--skip-record-metadata", LOG).out.splitlines()

    assert lines[3:6] == ["", "", ""]  # a line for each control record, as Kafka's tool has it
    assert lines[7] == '| payload: {"type":"BEGIN_TRANSACTION_RECORD","version":0,"data":{"name":"Bootstrap records"}}'


def own_log(directory: Path, *values: bytes) -> Path:
    path = directory / f"{0:020}.log"
    path.write_bytes(encode_batch(values, timestamp_ms=5, epoch=1).data)
    return path


def test_values_of_an_application_are_shown_as_text_when_asked(kraftlib: Command, tmp_path: Path) -> None:
    path = own_log(tmp_path, "grün".encode(), b"\xff")
    out = kraftlib("dump-log", "--print-data-log", path).out.splitlines()

    assert out[-2].endswith(" headerKeys: [] payload: grün")
    assert out[-1].endswith(" headerKeys: [] payload: \N{REPLACEMENT CHARACTER}")


def test_values_of_an_application_are_no_damage(kraftlib: Command, tmp_path: Path) -> None:
    path = own_log(tmp_path, b"red")
    text, as_json = kraftlib("dump-log", path), kraftlib("dump-log", "--output", "json", path)

    assert text.status == as_json.status == 0
    assert " payload: Error at 0, skipping. " in text.out
    assert json.loads(as_json.out)["records"][0]["payload"] is None
    assert "frame version" in json.loads(as_json.out)["records"][0]["payload_error"]


# Damage -------------------------------------------------------------------------------------------


def damaged(directory: Path, source: Path, change: Any) -> Path:
    data = bytearray(source.read_bytes())
    path = directory / source.name
    path.write_bytes(change(data) or data)
    return path


def test_a_wrong_checksum_is_said_of_its_batch_and_the_next_ones_are_shown(kraftlib: Command, tmp_path: Path) -> None:
    def flip(data: bytearray) -> None:
        data[292 + 21 + 10] ^= 1

    path = damaged(tmp_path, LOG, flip)
    result = kraftlib("dump-log", path)
    batches = [line for line in result.out.splitlines() if line.startswith("baseOffset")]

    assert result.status == 1
    assert result.err.startswith(f"kraftlib: {path}: batch at byte 292 (offset 3) does not fit its checksum")
    assert [line.endswith("isvalid: false") for line in batches] == [False, True, *[False] * (len(batches) - 2)]


def test_records_that_cannot_be_decoded_are_said_so_and_the_next_batch_is_shown(
    kraftlib: Command, tmp_path: Path
) -> None:
    def lie_about_a_length(data: bytearray) -> None:
        data[292 + 61] = 0x7F

    path = damaged(tmp_path, LOG, lie_about_a_length)
    text, as_json = kraftlib("dump-log", path), kraftlib("dump-log", "--output", "json", path)

    assert "\n| unreadable from here on: record 0 of 9" in text.out
    assert "baseOffset: 12 lastOffset: 12" in text.out
    assert "record 0 of 9" in json.loads(as_json.out.splitlines()[1])["error"]
    assert text.status == as_json.status == 1


def test_a_tail_that_is_no_batch_is_counted_as_kafka_does(kraftlib: Command, tmp_path: Path) -> None:
    path = damaged(tmp_path, LOG, lambda data: data[:-7])
    last = [found for found in walk(LOG) if isinstance(found, FoundBatch)][-1]
    text, as_json = kraftlib("dump-log", path), kraftlib("dump-log", "--output", "json", path)

    assert text.out.endswith(f"Found {last.size - 7} invalid bytes at the end of {LOG.name}\n")
    assert json.loads(as_json.out.splitlines()[-1])["invalid_bytes"] == last.size - 7
    assert text.status == as_json.status == 1


def test_a_log_cut_at_any_byte_shows_its_whole_batches(kraftlib: Command, tmp_path: Path) -> None:
    data = LOG.read_bytes()[:1_000]
    ends = [0, 292, 622, 908]
    path = tmp_path / LOG.name
    for cut in range(0, len(data), 7):
        path.write_bytes(data[:cut])
        result = kraftlib("dump-log", path)
        whole = max(end for end in ends if end <= cut)
        assert result.out.count("baseOffset") == ends.index(whole)
        assert f"Found {cut - whole} invalid bytes" in result.out or cut == whole
        assert result.status == (0 if cut == whole else 1)


def test_a_gap_in_the_offsets_is_named(kraftlib: Command, tmp_path: Path) -> None:
    path = damaged(tmp_path, LOG, lambda data: data[:292] + data[622:])
    result = kraftlib("dump-log", path)

    assert result.status == 1
    assert result.err == f"kraftlib: Non-consecutive offsets in {path}: 2 is followed by 12\n"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data[:-75], "has no footer: it is not complete"),
        (lambda data: data[83:], "does not begin with a snapshot header"),
        (lambda data: data + data[-75:], "Non-consecutive offsets"),
    ],
)
def test_a_checkpoint_is_whole_or_it_is_said_what_it_lacks(
    change: Any, says: str, kraftlib: Command, tmp_path: Path
) -> None:
    source = DATA / "kafka-4.3.1/n1/bootstrap.checkpoint"
    result = kraftlib("dump-log", damaged(tmp_path, source, change))

    assert result.status == 1
    assert says in result.err


def test_what_follows_a_footer_is_named(kraftlib: Command, tmp_path: Path) -> None:
    source = DATA / "kafka-4.3.1/n1/bootstrap.checkpoint"
    more = encode_batch([b"x"], timestamp_ms=5, base_offset=8).data
    result = kraftlib("dump-log", damaged(tmp_path, source, lambda data: data + more))

    assert result.status == 1
    assert "goes on after its footer" in result.err


# Names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mine.log", "mine.checkpoint", "7-x.checkpoint", "mine.index", "²³.log"])
def test_a_file_that_is_not_named_as_kafka_names_it_is_refused(name: str, kraftlib: Command, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    result = kraftlib("dump-log", path)

    assert result.status == 1
    assert f"{path} is not named by its" in result.err


def test_a_file_of_another_kind_is_said_not_to_have_been_looked_at(kraftlib: Command) -> None:
    result = kraftlib("dump-log", LOG.with_name("quorum-state"))

    assert result.status == 1
    assert "was not looked at" in result.err


def test_a_long_log_is_shown_in_the_memory_of_one_batch(tmp_path: Path) -> None:
    """96 MiB in batches of one; the process may grow by a fraction of that."""
    path = tmp_path / LOG.name
    batch = encode_batch([bytes(1024 * 1024)], timestamp_ms=5).data
    path.write_bytes(bytes(batch) * 96)
    program = (
        "import resource, sys; from kraftlib.cli import main;"
        "import kraftlib.cli.dump_log;"
        "base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        f"main(['dump-log', '--skip-record-metadata', {str(path)!r}]);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base, file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=120)

    grown_kib = int(result.stderr.decode().splitlines()[-1])
    assert grown_kib < 32 * 1024
