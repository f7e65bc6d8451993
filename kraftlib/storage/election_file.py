"""`quorum-state`: the file on which it depends that nobody votes twice in one epoch.

One line of JSON. The keys are Kafka's, which has two versions of it, picked by kraft.version; `generation` (a counter)
and `crc` are ours, and stand at the end. Kafka ignores them and drops them with its next write, which it does at every
start, so **a file without them is Kafka's and is believed**.

    {"clusterId":"","leaderId":1,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,
     "currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0,"generation":7,"crc":3421780262}
    {"leaderId":1,"leaderEpoch":5,"votedId":2,"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw",
     "data_version":1,"generation":8,"crc":305419896}

`"amnesiac":true` stands there, too, while a lost vote is not safe to be cast again. The crc is the CRC-32C of the line
as it would be without that key. `quorum-state.bak` mirrors the line and names inode and time of the file it mirrors, so
one that lags behind is never taken for the truth; so it is written after the rename, and nobody waits for it to be
durable.

| at start, `quorum-state` is | then |
|---|---|
| whole, and Kafka wrote it last | it counts, unless its epoch is below that of the log: the vote is lost |
| whole | likewise, unless the mirror is of a later one: a write was lost, and the vote with it |
| damaged, and still the very file that the mirror names | the mirror counts, and the file is written anew |
| damaged otherwise | the vote is lost |
| missing, and the directory shows that a replica ran here | the vote is lost |
| missing otherwise | a new replica: no vote, no epoch |
| of an unknown data version | refused, whatever else is known |
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.errors import ConfigError, StorageError
from kraftlib.records.checksum import crc32c
from kraftlib.storage import files, names
from kraftlib.storage.identity_file import mark_as_run
from kraftlib.storage.meta_properties import MetaProperties
from kraftlib.storage.reserve import Reserve
from kraftlib.types import (
    BOOTSTRAP_SNAPSHOT,
    ZERO_UUID,
    ElectionState,
    Epoch,
    ReplicaId,
    ReplicaKey,
    parse_uuid,
    uuid_text,
)

logger: Final = logging.getLogger(__name__)

_MAX_BYTES: Final = 1 << 20
_MAX_INT: Final = 2**31 - 1
_CRC: Final = re.compile(rb'(\{.*),"crc":([0-9]{1,10})\}', re.DOTALL)
_KAFKA_KEYS: Final[Mapping[object, frozenset[str]]] = {
    0: frozenset(("clusterId", "leaderId", "leaderEpoch", "votedId", "appliedOffset", "currentVoters", "data_version")),
    1: frozenset(("leaderId", "leaderEpoch", "votedId", "votedDirectoryId", "data_version")),
}


class DamagedError(Exception):
    """The bytes are not an election state; says why."""


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
        line = files.read_file(self._path, max_bytes=_MAX_BYTES)
        if line is None:
            if has_run(self._directory):
                return self._lost("is missing, though a replica has run in this directory")
            return None
        try:
            fields = parse_line(line)
        except DamagedError as damage:
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
        if fields["data_version"] not in _KAFKA_KEYS:
            raise StorageError(
                f"{self._path} has data version {fields['data_version']!r}, only 0 and 1 are known:"
                " it was written by a newer release, which must be used to go on",
                path=self._path,
            )
        self._data_version = fields["data_version"]
        return election_of(fields)

    def doubt(self) -> None:
        """Note, durably, that the vote may not be cast before it is safe: what this replica acknowledged is lost."""
        election = self.read() or ElectionState()
        if not election.amnesiac:
            doubtful = attrs.evolve(election, amnesiac=True)
            self.write(doubtful, kraft_version=self._data_version, voters=election.static_voters)

    def _from_mirror(self, damage: DamagedError) -> Mapping[str, Any] | ElectionState:
        """Return the state of the mirror, if it mirrors the very file that is damaged, and repair that."""
        mirror = files.read_file(self._mirror_path, max_bytes=_MAX_BYTES)
        try:
            line = parse_mirror(mirror or b"", self._identity())
            fields = parse_line(line)
        except DamagedError as also:
            return self._lost(f"is damaged ({damage}), and {self._mirror_path.name} cannot stand in ({also})")
        self._replace(line)
        return fields

    def _mirrored_generation(self) -> int:
        """Return the number of the file that the mirror was made from; 0, if nothing can be read from it."""
        try:
            data = files.read_file(self._mirror_path, max_bytes=_MAX_BYTES)
            return int(parse_line(parse_mirror(data or b""))["generation"])
        except (DamagedError, StorageError):
            return 0

    def _lost(self, what: str) -> ElectionState:
        """Say that the vote is lost, and return what is left: the epoch that the log names."""
        # What is written next is later than anything that was ever there.
        self._generation = max(self._generation, self._mirrored_generation())
        logger.error(
            "%s %s: whom this replica voted for is forgotten, so it neither votes nor stands until all other voters"
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
    """Whether `quorum-state` can be read and is without our CRC: Kafka has run here since, or nobody but Kafka."""
    line = files.read_file(directory / names.QUORUM_STATE, max_bytes=_MAX_BYTES)
    try:
        return line is not None and "crc" not in parse_line(line)
    except DamagedError:
        return False


def we_wrote_last(directory: Path) -> bool:
    """Whether `quorum-state` carries our CRC, be it right or wrong."""
    line = files.read_file(directory / names.QUORUM_STATE, max_bytes=_MAX_BYTES)
    return line is not None and b'"crc":' in line


def encode_line(election: ElectionState, *, kraft_version: int, voters: Sequence[int], generation: int) -> bytes:
    """Return the content of `quorum-state`."""
    voted = election.voted_key
    fields: dict[str, object] = {
        "leaderId": -1 if election.leader_id is None else election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": -1 if voted is None else voted.id,
    }
    if kraft_version == 0:
        fields = {"clusterId": "", **fields, "appliedOffset": 0}
        fields["currentVoters"] = [{"voterId": voter} for voter in voters]
    else:
        fields["votedDirectoryId"] = uuid_text((voted and voted.directory_id) or ZERO_UUID)
    fields["data_version"] = min(kraft_version, 1)
    if election.amnesiac:
        fields["amnesiac"] = True
    return _with_crc({**fields, "generation": generation})


def _with_crc(fields: Mapping[str, object]) -> bytes:
    line = json.dumps(fields, separators=(",", ":")).encode("ascii")
    return b'%s,"crc":%d}' % (line[:-1], crc32c(line))


def parse_line(data: bytes) -> Mapping[str, Any]:
    """Return the fields of `quorum-state`, its CRC checked if it has one. Only the first line counts, as in Kafka."""
    line = data.split(b"\n", 1)[0].rstrip(b"\r")
    match = _CRC.fullmatch(line)
    if match is not None and crc32c(match[1] + b"}") != int(match[2]):
        raise DamagedError("its CRC does not fit")
    fields = _json_object(line)
    version = _number(fields, "data_version")
    if match is None and version in _KAFKA_KEYS and set(fields) != _KAFKA_KEYS[version]:
        raise DamagedError("it has neither a CRC nor just the keys that Kafka writes")
    if version in _KAFKA_KEYS:
        election_of(fields)
    fields.setdefault("generation", 0)
    _number(fields, "generation")
    return fields


def election_of(fields: Mapping[str, Any]) -> ElectionState:
    """Return the election state that the fields of a known data version say."""
    epoch, leader_id = _number(fields, "leaderEpoch"), _number(fields, "leaderId")
    if epoch < 0:
        raise DamagedError(f"its epoch is {epoch}")
    return ElectionState(
        epoch=epoch,
        leader_id=None if leader_id < 0 else leader_id,
        voted_key=_voted_key(fields),
        amnesiac=fields.get("amnesiac") is True,
        static_voters=_static_voters(fields),
    )


def _static_voters(fields: Mapping[str, Any]) -> tuple[ReplicaId, ...]:
    """Return the ids of the static voters, ascending; none, if the voters stand in the log."""
    if fields["data_version"] != 0:
        return ()
    rows = fields.get("currentVoters")
    if rows is None:
        return ()  # Kafka's schema lets the list be null
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DamagedError(f"currentVoters is {rows!r}")
    return tuple(sorted(_number(row, "voterId") for row in rows))


def _voted_key(fields: Mapping[str, Any]) -> ReplicaKey | None:
    voted_id: ReplicaId = _number(fields, "votedId")
    if voted_id < 0:
        return None
    if fields["data_version"] == 0:
        return ReplicaKey(voted_id)
    try:
        directory_id = parse_uuid(fields.get("votedDirectoryId", ""))
    except (ConfigError, TypeError) as error:
        raise DamagedError(str(error)) from error
    # The zero id stands for "unknown": so a vote looks that was cast under data version 0. It matches any directory.
    return ReplicaKey(voted_id, None if directory_id == ZERO_UUID else directory_id)


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= _MAX_INT:
        raise DamagedError(f"{name} is {value!r}")
    return value


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        value = files.parse_json(data)
    except ValueError as error:
        raise DamagedError(f"it is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise DamagedError("it is no JSON object")
    return value


def encode_mirror(line: bytes, identity: tuple[int, int]) -> bytes:
    """Return the content of `quorum-state.bak`: a copy of `line` that names inode and time of the file it copies."""
    return _with_crc({"inode": identity[0], "mtime_ns": identity[1], "line": line.decode("ascii")})


def parse_mirror(data: bytes, identity: tuple[int, int] | None = None) -> bytes:
    """Return the line that the mirror copies; with `identity`, only if it is from that very file."""
    match = _CRC.fullmatch(data)
    if match is None or crc32c(match[1] + b"}") != int(match[2]):
        raise DamagedError("it is missing or its CRC does not fit")
    fields = _json_object(data)
    if identity is not None and (fields.get("inode"), fields.get("mtime_ns")) != identity:
        raise DamagedError("it mirrors another file")
    return str(fields.get("line", "")).encode("ascii", "replace")
