"""A short run of the images in a quorum, and proof that its judge would notice: planted bugs are caught."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from kraftlib.storage.damage import judgement, recovery
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.types import ElectionState
from tests.storage.images.history import history
from tests.storage.images.proof import Examined
from tests.storage.images.quorum import QuorumExaminer
from tests.storage.images.quorum_proof import Piece, examine_piece
from tests.storage.images.verdict import Outcome


def some(place: Path, number: int, count: int, *kinds: str, seed: int = 7) -> Examined:
    return examine_piece(Piece(top=place, number=number, count=count, seed=seed, kinds=frozenset(kinds)))


def test_nothing_wrong_is_served_applied_or_voted_on(place: Path) -> None:
    """`dev.py storage` has ten thousand of them."""
    found = some(place, 0, 4)

    assert found.wrong == []
    assert found.images == 4


def test_a_log_is_repaired_by_the_others(place: Path) -> None:
    found = some(place, 0, 6, "segment")

    assert found.wrong == []
    assert found.count(Outcome.REPAIRED) > 0


@pytest.mark.slow
def test_a_replica_that_forgets_its_vote_and_does_not_know_is_caught(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is damaged: whoever asks for its vote again gets it."""
    past = history(place / "history", closed=False, compacted=False)
    read = FileQuorumStateStore.read

    def forgetful(store: FileQuorumStateStore) -> ElectionState | None:
        election = read(store)
        return None if election is None else ElectionState(epoch=election.epoch)

    monkeypatch.setattr(FileQuorumStateStore, "read", forgetful)
    examiner = QuorumExaminer(place / "examined")
    found = [examiner.examine(past.image, past, seed) for seed in range(6)]

    assert any("a second time" in each.why for each in found if each.outcome is Outcome.WRONG)


@pytest.mark.slow
def test_a_storage_that_does_not_miss_what_it_had_made_durable_is_caught(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest segment comes back empty, and it votes for whoever has no more, or lets itself be elected."""
    past = history(place / "history", closed=False, compacted=False)
    newest = max(path for path in past.image.files if path.endswith(".log"))
    emptied = attrs.evolve(past.image.files[newest], data=b"")
    image = attrs.evolve(past.image, files={**past.image.files, newest: emptied})
    monkeypatch.setattr(judgement, "_note_missing_end", lambda log: None)
    monkeypatch.setattr(recovery, "is_believed", lambda *arguments: False)
    examiner = QuorumExaminer(place / "examined")
    found = [examiner.examine(image, past, seed) for seed in range(8)]

    assert any(each.outcome is Outcome.WRONG for each in found)
