"""`quorum-state`: the file that keeps a replica from voting twice in one epoch.

The mirror is written after the rename, and a vote does not wait for it to be durable.

| at start, `quorum-state` is | then |
|---|---|
| whole, and Kafka wrote it last | it counts, unless its epoch is below that of the log: the vote is lost |
| whole | likewise, unless the mirror is of a later one: a write was lost, and the vote with it |
| damaged, and still the very file that the mirror names | the mirror counts, and the file is written anew |
| damaged otherwise | the vote is lost |
| missing, and the directory shows that a replica ran here | the vote is lost |
| missing otherwise | a new replica: no vote, no epoch |
| of an unknown data version | refused, even if the mirror is whole |
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.errors import StorageError
from kraftlib.storage import files, names
from kraftlib.storage.election.identity import mark_as_run
from kraftlib.storage.election.line import (
    DATA_VERSIONS,
    election_of,
    encode_line,
    encode_mirror,
    parse_line,
    parse_mirror,
)
from kraftlib.storage.meta_properties import MetaProperties
from kraftlib.storage.notes import NoteError
from kraftlib.storage.reserve import Reserve
from kraftlib.types import BOOTSTRAP_SNAPSHOT, ElectionState, Epoch

logger: Final = logging.getLogger(__name__)

_MAX_BYTES: Final = 1 << 20


class FileQuorumStateStore:
    """The election state in `quorum-state`, in a directory that is locked for this process."""

    def __init__(
        self,
        directory: Path,
        *,
        log_epoch: Epoch = 0,
        file_mode: int = files.FILE_MODE,
        reserve: Reserve | None = None,
        identity: MetaProperties | None = None,
    ) -> None:
        """`log_epoch` is the newest epoch in the log and its snapshots: an election state below it is too old.

        `identity` is noted beside it, for a `meta.properties` that is damaged later.
        """
        self._directory: Final = directory
        self._path: Final = directory / names.QUORUM_STATE
        self._mirror_path: Final = directory / names.QUORUM_STATE_MIRROR
        self._log_epoch: Final = log_epoch
        self._file_mode: Final = file_mode
        self._reserve: Final = reserve if reserve is not None else Reserve(directory, size=0)
        self._identity_of_replica: Final = identity
        self._generation = 0
        self._data_version = 0
        self._is_marked = False
        self._is_closed = False

    def read(self) -> ElectionState | None:
        """Return what was written last; None if nothing ever was.

        An amnesiac state, if there was something and it is gone, damaged or too old. Raises: StorageError for a version
        of the file that is not known.
        """
        line = files.read_file(self._path, max_bytes=_MAX_BYTES, may_be_lost=True)
        if line is None:
            if has_run(self._directory):
                return self._lost("is missing, though a replica has run in this directory")
            return None
        try:
            fields = parse_line(line)
        except NoteError as damage:
            found = self._from_mirror(damage)
            if isinstance(found, ElectionState):
                return found
            fields = found
        election = self._election(fields)
        mirrored = self._mirrored_generation()
        self._generation = max(fields["generation"], mirrored)
        if 0 < fields["generation"] < mirrored:
            return self._lost(f"is number {fields['generation']}, and {mirrored} was written")
        if election.epoch < self._log_epoch:
            return self._lost(f"says epoch {election.epoch}, and the log has records of epoch {self._log_epoch}")
        return election

    def _election(self, fields: Mapping[str, Any]) -> ElectionState:
        if fields["data_version"] not in DATA_VERSIONS:
            raise StorageError(
                f"{self._path} has data version {fields['data_version']!r}, only 0 and 1 are known:"
                " it was written by a newer release, which must be used to go on",
                path=self._path,
            )
        self._data_version = fields["data_version"]
        return election_of(fields)

    def doubt(self) -> None:
        """Note, durably, that the vote may not be cast before it is safe: the log that this replica acknowledged is
        lost."""
        election = self.read() or ElectionState()
        if not election.amnesiac:
            doubtful = attrs.evolve(election, amnesiac=True)
            self.write(doubtful, kraft_version=self._data_version, voters=election.static_voters)

    def _from_mirror(self, damage: NoteError) -> Mapping[str, Any] | ElectionState:
        """Return the state of the mirror, if it mirrors the very file that is damaged, and repair that."""
        mirror = files.read_file(self._mirror_path, max_bytes=_MAX_BYTES, may_be_lost=True)
        try:
            line = parse_mirror(mirror or b"", self._identity())
            fields = parse_line(line)
        except NoteError as also:
            return self._lost(f"is damaged ({damage}), and {self._mirror_path.name} cannot stand in ({also})")
        self._replace(line)
        return fields

    def _mirrored_generation(self) -> int:
        """Return the number of the file that the mirror was made from; 0, if nothing can be read from it."""
        try:
            data = files.read_file(self._mirror_path, max_bytes=_MAX_BYTES, may_be_lost=True)
            return int(parse_line(parse_mirror(data or b""))["generation"])
        except (NoteError, StorageError):
            return 0

    def _lost(self, what: str) -> ElectionState:
        """Say that the vote is lost, and return what is left: the epoch that the log names."""
        # The next write is later than any that was ever there.
        self._generation = max(self._generation, self._mirrored_generation())
        logger.error(
            "%s %s: the vote of this replica is forgotten, so it neither votes nor stands until all other voters"
            " have told their epochs",
            self._path,
            what,
        )
        return ElectionState(epoch=self._log_epoch, amnesiac=True)

    def write(self, election: ElectionState, *, kraft_version: int, voters: Sequence[int] = ()) -> None:
        """Replace the election state. Durable on return, all or nothing.

        `kraft_version` picks the data version; `voters` are the ids of a static quorum, with which a later start
        compares its own list.
        """
        if self._is_closed:
            raise StorageError(f"the election store of {self._path} is closed", path=self._path)
        if not self._is_marked:
            identity = self._identity_of_replica
            self._reserve.spend(lambda: mark_as_run(self._directory, identity, file_mode=self._file_mode))
            self._is_marked = True
        self._generation += 1
        self._replace(encode_line(election, kraft_version=kraft_version, voters=voters, generation=self._generation))

    def _replace(self, line: bytes) -> None:
        # A full disk costs no vote: the reserve is there for this.
        self._reserve.spend(lambda: files.replace_file(self._path, line, mode=self._file_mode))
        mirror = encode_mirror(line, self._identity())
        self._reserve.spend(lambda: files.replace_file(self._mirror_path, mirror, mode=self._file_mode, durable=False))

    def _identity(self) -> tuple[int, int]:
        """Return inode and time of change of `quorum-state`."""
        with files.storage_errors("look at", self._path):
            found = os.stat(self._path, follow_symlinks=False)
        return found.st_ino, found.st_mtime_ns

    def close(self) -> None:
        """No more writes. Calling it twice is allowed."""
        self._is_closed = True


def doubt_vote(directory: Path, *, file_mode: int) -> None:
    """Let the replica of this directory be amnesiac at its next start, whatever `quorum-state` says now."""
    FileQuorumStateStore(directory, file_mode=file_mode).doubt()


def has_run(directory: Path) -> bool:
    """Whether the directory shows that a replica ran here: our marker, a batch, or a snapshot but the first."""
    for name in files.list_names(directory):
        snapshot_id = names.parse_checkpoint_name(name)
        if name == names.HAS_RUN or (snapshot_id is not None and snapshot_id != BOOTSTRAP_SNAPSHOT):
            return True
        if names.parse_segment_name(name) is not None and files.size_of(directory / name) > 0:
            return True
    return False


def kafka_wrote_last(directory: Path) -> bool:
    """Whether `quorum-state` can be read and is without our CRC: Kafka has run here since, or Kafka alone has ever run
    here."""
    line = files.read_file(directory / names.QUORUM_STATE, max_bytes=_MAX_BYTES, may_be_lost=True)
    try:
        return line is not None and "crc" not in parse_line(line)
    except NoteError:
        return False


def we_wrote_last(directory: Path) -> bool:
    """Whether `quorum-state` carries our CRC, be it right or wrong."""
    line = files.read_file(directory / names.QUORUM_STATE, max_bytes=_MAX_BYTES, may_be_lost=True)
    return line is not None and b'"crc":' in line
