"""Single-fault images in a quorum, by the thousand: `examine_in_quorum` shares them out among processes."""

from __future__ import annotations

import concurrent.futures
import logging
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import attrs

from tests.storage.images.damage import faults
from tests.storage.images.history import history
from tests.storage.images.proof import HISTORIES, Examined
from tests.storage.images.quorum import QuorumExaminer
from tests.storage.images.verdict import Outcome

AT_ONCE = 250
"""Images of one piece of work."""


@attrs.frozen(kw_only=True)
class Piece:
    """Some images of one history."""

    top: Path
    number: int
    """Which history."""
    count: int
    seed: int
    kinds: frozenset[str] = frozenset()
    """Of which files; all, if empty."""


def examine_in_quorum(
    top: Path, count: int, *, seed: int = 0, processes: int = 0, say: Callable[[str], object] = lambda line: None
) -> Examined:
    """Let quorums live with `count` images, made below a directory, which should be one in memory."""
    pieces = [
        Piece(top=top, number=number % len(HISTORIES), count=min(AT_ONCE, count - begin), seed=seed * 1_000 + number)
        for number, begin in enumerate(range(0, count, AT_ONCE))
    ]
    result = Examined()
    forked = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(processes or os.cpu_count() or 1, mp_context=forked) as workers:
        doing = [workers.submit(examine_piece, piece) for piece in pieces]
        for done in concurrent.futures.as_completed(doing):
            result.add(done.result())
            say(f"{result.images:,} images in a quorum, {len(result.wrong)} wrong, {len(result.halted)} halted")
    return result


def examine_piece(piece: Piece) -> Examined:
    """Examine some images, in this process."""
    logging.disable(logging.CRITICAL)
    result = Examined()
    with tempfile.TemporaryDirectory(dir=piece.top) as place:
        past = history(Path(place) / "history", **HISTORIES[piece.number])
        examiner = QuorumExaminer(Path(place) / "examined")
        untouched = examiner.examine(past.image, past, piece.seed)
        if untouched.outcome is not Outcome.UNHARMED:
            raise AssertionError(f"{past.name}: nothing was done to it, and it is {untouched}")
        for number, fault in enumerate(faults(past, piece.count, piece.seed, kinds=piece.kinds)):
            result.take(past, fault, examiner.examine(fault.image, past, piece.seed + number))
    return result
