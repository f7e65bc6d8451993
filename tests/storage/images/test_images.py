"""One fault in one file: never served, applied or voted on, never a loss, and put right where there is a majority."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.storage.log.epochs import EpochTable
from tests.storage.images.proof import Examined, examine
from tests.storage.images.verdict import Outcome
from tests.storage.laid_out import in_memory

IMAGES = 180
"""`dev.py storage` examines ten thousand."""


@pytest.fixture(scope="module")
def examined() -> Examined:
    """What came of a few hundred images."""
    with in_memory() as top:
        return examine(Path(top), IMAGES)


def test_nothing_wrong_is_accepted_in_silence(examined: Examined) -> None:
    assert examined.wrong == []
    assert examined.images >= IMAGES * 0.9


def test_what_others_can_stand_in_for_is_put_right(examined: Examined) -> None:
    assert examined.well(examined.repairable) >= 0.99, examined.halted
    assert examined.count(Outcome.REPAIRED) > 10


def test_every_kind_of_file_was_hit(examined: Examined) -> None:
    assert {"segment", "vote", "mirror of the vote", "sync point", "known prefix", "snapshot"} <= set(examined.outcomes)


@pytest.mark.slow
def test_a_storage_that_takes_any_epoch_is_caught(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch of a batch is in no CRC of Kafka's: what serves a flipped one must be seen to."""
    monkeypatch.setattr(EpochTable, "first_misfit", lambda self, batches: None)

    assert examine(place, 600).wrong != []


@pytest.mark.slow
def test_a_storage_that_believes_an_old_vote_is_caught(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kraftlib.storage.election.store import FileQuorumStateStore

    monkeypatch.setattr(FileQuorumStateStore, "_mirrored_generation", lambda self: 0)

    assert any("the vote is" in line for line in examine(place, 1_200).wrong)
