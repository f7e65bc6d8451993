"""What a quorum makes of a replica with a damaged directory: `QuorumExaminer`, beside the `Examiner` of files alone.

An image goes through these hours:

    alone       nobody else is there. It may start or refuse to; it must not lead, must not vote twice in an epoch or
                for a candidate that lacks what it has acknowledged, must not apply what is not true
    the wrong   (every other image) the replica that is behind comes; the one that has everything does not. What was
    majority    acknowledged is on the damaged disk or nowhere: they wait, or have all of it
    majority    the third one comes: within 20 seconds all three are alike, and the damaged one votes and is voted for
    put to use  one of the others goes: the damaged one is needed for every commit now

and in the end its directory is opened once more and read, batch by batch.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

from kraftlib.errors import KraftError, ReplicaFailedError
from kraftlib.records.batch import Batch
from kraftlib.storage.directory import open_directory
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.types import ElectionState
from tests.storage.images.history import History, config_of
from tests.storage.images.hurried import hurried
from tests.storage.images.trio import BEHIND, HURT, WHOLE, Trio, Truth, wait_for_releases
from tests.storage.images.verdict import Found, Outcome
from tools.storage_proof.file_trace import Image
from tools.storage_proof.os_watch import StatHandler, let_through, watching

ALONE_MS = 700
WRONG_MAJORITY_MS = 1_500
MAJORITY_MS = 20_000
BEHIND_MOST = 9
READ_BYTES = 1 << 20


class QuorumExaminer:
    """Lays images out and lets a quorum live with them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def examine(self, image: Image, history: History, seed: int) -> Found:
        """Live through all hours with an image."""
        wait_for_releases()  # of a replica that did not start
        shutil.rmtree(self._directory, ignore_errors=True)
        on_stat: StatHandler = image.lay_out(self._directory)
        with hurried() as run, watching("kraftlib.storage", let_through, on_stat=on_stat):
            hours = _Hours(history, self._directory, random.Random(seed))
            found: Found = run(hours.live())
            return found


class _Hours:
    def __init__(self, past: History, directory: Path, chance: random.Random) -> None:
        self._past = past
        self._directory = directory
        self._chance = chance
        self._behind = chance.randint(0, BEHIND_MOST)
        self._asked_epoch = past.election.epoch + chance.randint(0, 1)
        self._asked = chance.random() < 0.5
        self._seen = 0
        self.truth = Truth.of(past)
        self.trio = Trio(
            past,
            directory,
            self.truth,
            behind=self._behind,
            epoch=self._asked_epoch if self._asked else None,
            seed=chance.randrange(1 << 30),
        )

    async def live(self) -> Found:
        try:
            return await self._live()
        except ReplicaFailedError as failure:
            return self._verdict(Outcome.HALTED, str(failure))
        finally:
            await self._stop()

    async def _stop(self) -> None:
        for node_id in list(self.trio.clients):
            try:
                await self.trio.stop(node_id)
            except KraftError:  # of a disk that is damaged
                continue

    def _verdict(self, outcome: Outcome, why: str = "") -> Found:
        return Found(Outcome.WRONG, "; ".join(self.truth.wrong[:3])) if self.truth.wrong else Found(outcome, why)

    async def _live(self) -> Found:
        trio, truth = self.trio, self.truth
        with _Votes(self._past, truth) as votes, _watched_repairs() as repaired:
            try:
                hurt = await trio.start(HURT)
            except KraftError as error:
                return Found(Outcome.HALTED, f"{type(error).__name__}: {error}")
            noticed = trio.abstains(HURT)
            await self._alone()
            noticed = noticed or trio.abstains(HURT)
            truth.lonely = False
            votes.lacking = self._behind > 0
            if self._chance.random() < 0.5:
                await trio.start(BEHIND)
                await trio.commit(b"of the wrong majority", within_ms=WRONG_MAJORITY_MS)
            if truth.wrong:
                return self._verdict(Outcome.WRONG)
            for node_id in (WHOLE, BEHIND):
                if node_id not in trio.clients:
                    await trio.start(node_id)
            if not await self._all_alike():
                return self._verdict(Outcome.HALTED, f"it does not come back: {hurt.status()!r:.400}")
            noticed = noticed or "; ".join(repaired) or f"{self._seen} looks found it abstaining" * bool(self._seen)
            votes.lacking = False
            gone = self._chance.choice((WHOLE, BEHIND))
            await trio.stop(gone)
            if not await trio.commit(b"put to use", within_ms=MAJORITY_MS):
                return self._verdict(Outcome.HALTED, f"without {gone} nothing is committed: {hurt.status()!r:.400}")
            newest = max(truth.values)
            if not await trio.until(lambda: trio.applied_offset(HURT) > newest, within_ms=MAJORITY_MS):
                return self._verdict(Outcome.HALTED, f"it does not apply {newest}")
            await trio.stop_all()
        self._compare(WHOLE if gone == BEHIND else BEHIND)
        return self._verdict(Outcome.REPAIRED if noticed else Outcome.UNHARMED, noticed)

    async def _alone(self) -> None:
        """Nobody is there, but perhaps somebody asked for a vote before he was gone."""
        past, trio, truth = self._past, self.trio, self.truth
        if self._asked:
            if self._asked_epoch == past.election.epoch:
                granted = await trio.grants(
                    epoch=self._asked_epoch, last_epoch=self._asked_epoch - 1, end_offset=10_000
                )
                if granted:
                    truth.wrong.append(f"it votes in epoch {self._asked_epoch} a second time")
            else:
                log = trio.logs[BEHIND]
                granted = await trio.grants(
                    epoch=self._asked_epoch, last_epoch=log.epoch_starts()[-1].epoch, end_offset=log.end_offset
                )
                if granted and self._behind:
                    truth.wrong.append("it votes for a candidate that lacks what it has acknowledged")
        await trio.until(lambda: bool(truth.wrong), within_ms=ALONE_MS)

    async def _all_alike(self) -> bool:
        """Commit something, and wait until all three have it and the damaged one, scrubbed, is as good as any."""
        trio = self.trio
        if not await trio.commit(b"of a majority", within_ms=MAJORITY_MS):
            return False
        enough = trio.scrubs(HURT) + 2  # the one that is under way may be past the damage

        def alike() -> bool:
            if trio.abstains(HURT) is not None:
                self._seen += 1
                return False
            ends = {client.log_end_offset() for client in trio.clients.values()}
            applied = {trio.applied_offset(node_id) for node_id in trio.clients}
            return trio.scrubs(HURT) >= enough and len(ends) == len(applied) == 1 and max(applied) > 0

        return await trio.until(alike, within_ms=MAJORITY_MS)

    def _compare(self, with_id: int) -> None:
        """Open the directory again: it holds what the other one holds, or a beginning of it."""
        truth, other = self.truth, self.trio.logs[with_id].reopen()
        opened = open_directory(config_of(self._directory))
        try:
            log = opened.log
            if log.is_doubtful or log.holes() or (opened.elections.read() or ElectionState()).amnesiac:
                truth.wrong.append("it was whole, and is not when it is opened again")
                return
            offset = start = max(log.start_offset, other.start_offset)
            end = min(log.end_offset, other.end_offset)
            if end <= max(truth.values):
                truth.wrong.append(f"the logs end at {log.end_offset} and {other.end_offset}")
            while offset < end:
                batches = log.read(offset, READ_BYTES)
                for mine, its in zip(batches, other.read(offset, READ_BYTES), strict=False):
                    if bytes(mine.data) != bytes(its.data):
                        truth.wrong.append(f"the batch at {mine.base_offset} is not that of replica {with_id}")
                    offset = mine.end_offset
            if start > self._past.start_offset and not log.snapshots():
                truth.wrong.append(f"the log begins at {start}, and no snapshot is there")
        except KraftError as error:
            truth.wrong.append(f"opened again, it cannot be read: {type(error).__name__}: {error}")
        finally:
            opened.close()


@contextlib.contextmanager
def _watched_repairs() -> Iterator[list[str]]:
    """Yield what replica 1 has repaired so far: it may take less time than passes between two looks at it."""
    repaired: list[str] = []
    write = FileReplicatedLog.write_repair

    def watched(log: FileReplicatedLog, batches: Sequence[Batch]) -> bool:
        hole = log.holes()[0]
        full = write(log, batches)
        if full:
            repaired.append(f"{hole} is repaired")
        return full

    with mock.patch.object(FileReplicatedLog, "write_repair", watched):
        yield repaired


class _Votes:
    """Reads every election state that replica 1 makes durable: the others keep theirs in memory."""

    def __init__(self, past: History, truth: Truth) -> None:
        self.lacking = False
        """Whether replica 3 lacks something that was acknowledged."""
        self._before = past.election
        self._truth = truth
        self._write = FileQuorumStateStore.write

    def __enter__(self) -> _Votes:
        votes, write = self, self._write

        def watched(store: FileQuorumStateStore, election: ElectionState, **more: object) -> None:
            votes._see(election)
            write(store, election, **more)  # type: ignore[arg-type]

        FileQuorumStateStore.write = watched  # type: ignore[assignment, method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        FileQuorumStateStore.write = self._write  # type: ignore[method-assign]

    def _see(self, election: ElectionState) -> None:
        if election.amnesiac:
            return  # it knows that it has forgotten, even the epoch; what it says once it votes again counts
        before, self._before, wrong = self._before, election, self._truth.wrong
        voted, voted_before = election.voted_key, before.voted_key
        if election.epoch < before.epoch:
            wrong.append(f"its epoch goes back from {before.epoch} to {election.epoch}")
        elif election.epoch == before.epoch and voted is not None:
            if voted_before is not None and voted.id != voted_before.id:
                wrong.append(f"it votes for {voted.id} in epoch {election.epoch}, and had for {voted_before.id}")
            elif voted_before is None and before.leader_id not in (None, voted.id):
                wrong.append(f"it votes for {voted.id} in epoch {election.epoch}, which {before.leader_id} leads")
        elif self.lacking and voted is not None and voted.id == BEHIND:
            wrong.append(f"it votes in epoch {election.epoch} for replica {BEHIND}, which lacks what was acknowledged")
