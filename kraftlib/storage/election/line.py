"""The bytes of `quorum-state` and of its mirror.

One line of JSON. The keys are Kafka's, which has two versions of it, picked by kraft.version; `generation` (a counter)
and `crc` are ours, and stand at the end. Kafka ignores them and drops them with its next write, which it does at every
start, so **a file without them is Kafka's and is believed**.

    {"clusterId":"","leaderId":1,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,
     "currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0,"generation":7,"crc":3421780262}
    {"leaderId":1,"leaderEpoch":5,"votedId":2,"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw",
     "data_version":1,"generation":8,"crc":305419896}

`"amnesiac":true` stands there, too, while a lost vote is not safe to be cast again, and `"epochDebtMs":800` while
something is owed for raised epochs. `quorum-state.bak` mirrors the line
and names inode and time of the file it mirrors, so that one that lags behind is never taken for the truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraftlib.errors import ConfigError
from kraftlib.storage import notes
from kraftlib.storage.notes import NoteError
from kraftlib.types import ZERO_UUID, ElectionState, ReplicaId, ReplicaKey, parse_uuid, uuid_text

_MAX_INT: Final = 2**31 - 1
_MAX_DEBT_MS: Final = 2**53
_KAFKA_KEYS: Final[Mapping[object, frozenset[str]]] = {
    0: frozenset(("clusterId", "leaderId", "leaderEpoch", "votedId", "appliedOffset", "currentVoters", "data_version")),
    1: frozenset(("leaderId", "leaderEpoch", "votedId", "votedDirectoryId", "data_version")),
}
DATA_VERSIONS: Final = frozenset(_KAFKA_KEYS)
"""The data versions that are known."""


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
    if election.epoch_debt_ms:
        fields["epochDebtMs"] = election.epoch_debt_ms
    return notes.seal(notes.encode({**fields, "generation": generation}))


def parse_line(data: bytes) -> Mapping[str, Any]:
    """Return the fields of `quorum-state`, its CRC checked if it has one. Only the first line counts, as in Kafka."""
    line = data.split(b"\n", 1)[0].rstrip(b"\r")
    is_sealed = notes.is_sealed(line)
    fields = notes.parse_sealed(line) if is_sealed else notes.parse(line)
    version = _number(fields, "data_version")
    if not is_sealed and version in _KAFKA_KEYS and set(fields) != _KAFKA_KEYS[version]:
        raise NoteError("it has neither a CRC nor just the keys that Kafka writes")
    if version in _KAFKA_KEYS:
        election_of(fields)
    fields.setdefault("generation", 0)
    _number(fields, "generation")
    return fields


def election_of(fields: Mapping[str, Any]) -> ElectionState:
    """Return the election state that the fields of a known data version say."""
    epoch, leader_id = _number(fields, "leaderEpoch"), _number(fields, "leaderId")
    if epoch < 0:
        raise NoteError(f"its epoch is {epoch}")
    return ElectionState(
        epoch=epoch,
        leader_id=None if leader_id < 0 else leader_id,
        voted_key=_voted_key(fields),
        amnesiac=fields.get("amnesiac") is True,
        epoch_debt_ms=notes.integer({"epochDebtMs": 0, **fields}, "epochDebtMs", low=0, high=_MAX_DEBT_MS),
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
        raise NoteError(f"currentVoters is {rows!r}")
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
        raise NoteError(str(error)) from error
    # The zero id stands for "unknown": so a vote looks that was cast under data version 0. It matches any directory.
    return ReplicaKey(voted_id, None if directory_id == ZERO_UUID else directory_id)


def _number(fields: Mapping[str, Any], name: str) -> int:
    return notes.integer(fields, name, low=-1, high=_MAX_INT)


def encode_mirror(line: bytes, identity: tuple[int, int]) -> bytes:
    """Return the content of `quorum-state.bak`: a copy of `line` that names inode and time of the file it copies."""
    return notes.seal(notes.encode({"inode": identity[0], "mtime_ns": identity[1], "line": line.decode("ascii")}))


def parse_mirror(data: bytes, identity: tuple[int, int] | None = None) -> bytes:
    """Return the line that the mirror copies; with `identity`, only if it is from that very file."""
    fields = notes.parse_sealed(data)
    if identity is not None and (fields.get("inode"), fields.get("mtime_ns")) != identity:
        raise NoteError("it mirrors another file")
    return str(fields.get("line", "")).encode("ascii", "replace")
