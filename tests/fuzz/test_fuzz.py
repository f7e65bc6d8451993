"""The fuzzer finds what it is there to find; long runs are `dev.py fuzz`."""

from __future__ import annotations

import json
import random
from pathlib import Path

import attrs
import pytest

from kraftlib.errors import ProtocolError
from tests.fuzz import corpus
from tests.fuzz.run import Fuzzer, Tally, main, worth_keeping
from tests.fuzz.targets import FRAMES, Directories, Target
from tools.fuzz.mutation import CHANGES, mutated


@pytest.mark.parametrize("make", FRAMES, ids=lambda make: make.__name__)
def test_a_reader_of_bytes_refuses_by_its_own_error_only(make: object) -> None:
    tally = Tally()
    target = make()  # type: ignore[operator]
    Fuzzer(target, 7, tally).run(1_500)

    assert tally.findings == []
    assert tally.tried[target.name] == 1_500
    if target.allowed:
        assert 0 < tally.refused[target.name] < 1_500


def test_an_error_that_is_not_its_own_is_found_and_can_be_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    def read(data: bytes) -> object:
        if not data:
            raise ProtocolError("nothing")
        return [10 // byte for byte in data]

    tally = Tally()
    Fuzzer(Target(name="division", samples=[b"abc"], read=read, allowed=(ProtocolError,)), 1, tally).run(500)

    assert "ZeroDivisionError" in tally.findings[0]
    assert "--target 'division' --frame " in tally.findings[0]
    assert main(["--target", "requests", "--frame", "0012000400000008"]) == 0
    assert "refused: RemoteProtocolError" in capsys.readouterr().out


def test_a_frame_that_reaches_a_new_line_is_a_sample_from_then_on() -> None:
    tally = Tally()
    Fuzzer(FRAMES[0](), 3, tally).run(200)

    assert tally.reached > 5


def test_the_fuzzer_begins_from_a_corpus_that_reaches_more_than_the_samples() -> None:
    kept = corpus.read()
    targets = {make.__name__: make() for make in FRAMES}
    assert set(kept) == {target.name for target in targets.values()}
    assert corpus.PATH.stat().st_size <= corpus.FILE_MAX_BYTES
    seen: list[bytes] = []
    target = attrs.evolve(targets["requests"], samples=[], read=seen.append, mend=lambda frame, chance: frame)
    Fuzzer(target, 5, Tally()).run(2_000)
    known = {frame[:8] for frame in seen}
    assert known & {frame[:8] for frame in kept["requests"]}, "changes go on from its frames"
    for name in ("logins", "envelopes"):
        reached = worth_keeping(targets[name], kept[name])
        assert len(reached) > len(kept[name]) / 2, "what is reached at the first use of a message counts once"


def test_a_damaged_directory_is_opened_or_refused_by_an_error_of_ours(tmp_path: Path) -> None:
    directories, chance = Directories(tmp_path), random.Random(5)
    refused = sum(
        directories.try_one(chance, lambda data: mutated(data, directories.samples, chance)) for _ in range(120)
    )

    assert 0 < refused < 120


def test_every_change_ends_and_stays_within_bounds() -> None:
    chance, samples = random.Random(2), [b"", b"a", bytes(range(256)) * 8]
    for change in CHANGES:
        for sample in samples:
            data = bytearray(sample)
            for _ in range(200):
                change(data, samples, chance)
                del data[5_000:]


def test_a_run_is_told_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--count", "700", "--jobs", "1", "--seed", "1", "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (sum(told["tried"].values()) >= 700, told["findings"], told["seed"]) == (True, [], 1)
    with pytest.raises(SystemExit):
        main(["--target", "nothing"])
    assert "known are requests, responses" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--controller"])
    assert "give --port, too" in capsys.readouterr().err
