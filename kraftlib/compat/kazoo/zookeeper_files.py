"""Nodes of a ZooKeeper that does not run, from its files: the newest whole snapshot, and the transactions after it.

    snapshot.<zxid>   "ZKSN", version (int32), id (int64); sessions: count, then id (int64) and timeout (int32) each;
                      ACLs: count, then number (int64) and a list each; nodes: path, data, number of the ACL, and the
                      eight numbers of `_node`, until the path "/"; then Adler-32 of all this (int64) and "/"
    log.<zxid>        "ZKLG", version (int32), id (int64); then for each transaction Adler-32 (int64), size (int32), the
                      transaction and "B"; zeros follow

Numbers are big-endian; text and data have their size (int32, -1 for none) in front. A snapshot is taken while nodes
change, so transactions after its zxid may be in it already: they are applied again, as ZooKeeper does, without harm.
Source: FileSnap, FileTxnLog, DataTree of ZooKeeper 3.4 to 3.9.
"""

from __future__ import annotations

import enum
import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from kraftlib.codec.reader import Reader
from kraftlib.compat.kazoo.nodes import ROOT, split
from kraftlib.compat.kazoo.source import CONTAINER, SERVERS_OWN, WITH_TTL, Source, SourceNode
from kraftlib.errors import ConfigError, ProtocolError

SNAPSHOT_MAGIC: Final = 0x5A4B534E
LOG_MAGIC: Final = 0x5A4B4C47
HEADER_BYTES: Final = 16
FILE_BYTES_MAX: Final = 16 << 30
"""Of a file, unpacked."""

TTL_OWNER: Final = WITH_TTL << 56


class _Kind(enum.IntEnum):
    """The kind of a transaction. Others do not change nodes."""

    CREATE = 1
    DELETE = 2
    SET_DATA = 5
    MULTI = 14
    CREATE2 = 15
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    CLOSE_SESSION = -11
    ERROR = -1
    """Part of a MULTI that has failed."""


@attrs.define
class _State:
    """The nodes as of a transaction, with the owner of each; the root is "/"."""

    zxid: int
    nodes: dict[str, tuple[SourceNode, int]]

    def apply(self, kind: int, body: Reader, *, session: int, time_ms: int) -> None:
        """Do one transaction, which has succeeded when it was logged."""
        match kind:
            case _Kind.CREATE | _Kind.CREATE2 | _Kind.CREATE_CONTAINER | _Kind.CREATE_TTL:
                self._create(kind, body, session, time_ms)
            case _Kind.DELETE | _Kind.DELETE_CONTAINER:
                self.nodes.pop(_text(body), None)
            case _Kind.SET_DATA:
                path, data, version = _text(body), _data(body), body.int32()
                if path in self.nodes:
                    node, owner = self.nodes[path]
                    changed = attrs.evolve(node, data=data, version=version, mtime_ms=time_ms)
                    self.nodes[path] = changed, owner
            case _Kind.CLOSE_SESSION:
                for path in [path for path, (_, owner) in self.nodes.items() if owner == session and owner]:
                    del self.nodes[path]
            case _Kind.MULTI:
                parts = [(body.int32(), Reader(_data(body) or b"")) for _ in range(_count(body, 8))]
                if all(part not in (_Kind.ERROR, _Kind.MULTI) for part, _ in parts):
                    for part, inner in parts:
                        self.apply(part, inner, session=session, time_ms=time_ms)

    def _create(self, kind: int, body: Reader, session: int, time_ms: int) -> None:
        path, data = _text(body), _data(body)
        _skip_acl(body)
        owner = CONTAINER if kind == _Kind.CREATE_CONTAINER else TTL_OWNER if kind == _Kind.CREATE_TTL else 0
        if kind in (_Kind.CREATE, _Kind.CREATE2) and body.boolean():
            owner = session
        creations = body.int32()
        parent = self.nodes.get(split(path)[0])
        if parent is None:
            return
        above, its_owner = parent
        creations = above.creations + 1 if creations == -1 else max(creations, above.creations)
        self.nodes[split(path)[0]] = attrs.evolve(above, creations=creations), its_owner
        if path not in self.nodes:
            self.nodes[path] = SourceNode(data=data, ctime_ms=time_ms, mtime_ms=time_ms), owner


def read_files(directories: Sequence[Path], top: str) -> Source:
    """Read the node `top` and all below it from the data directory of a server, and that of its log if it has one.

    Raises: ConfigError, if there is no whole snapshot, a file is damaged, or there is no such node.
    """
    places = [place for directory in directories for place in (directory, directory / "version-2")]
    files = [file for place in places for file in _listed(place)]
    snapshots = sorted((file for file in files if file.name.startswith("snapshot.")), key=_zxid, reverse=True)
    if not snapshots:
        named = ", ".join(map(str, directories))
        raise ConfigError(f"{named}: there is no snapshot of ZooKeeper; name the dataDir of a server")
    state = _newest(snapshots)
    logs = sorted((file for file in files if file.name.startswith("log.")), key=_zxid)
    since = max((_zxid(log) for log in logs if _zxid(log) <= state.zxid + 1), default=0)
    for log in logs:
        if _zxid(log) >= since:
            _replay(log, state)
    source = Source()
    prefix = top.rstrip("/") + "/"
    for path, (node, owner) in state.nodes.items():
        is_servers_own = f"{path}/".startswith(f"{SERVERS_OWN}/") and not f"{top}/".startswith(f"{SERVERS_OWN}/")
        if (path == top or path.startswith(prefix)) and not is_servers_own:
            source.note(path, node, owner)
    if top not in source.nodes:
        raise ConfigError(
            f"the files have no node {top!r} that is to stay: name one that is neither gone nor ephemeral"
        )
    return source


def _listed(place: Path) -> list[Path]:
    if not place.is_dir():
        return []
    return [file for file in place.iterdir() if file.name.startswith(("snapshot.", "log.")) and _zxid(file) >= 0]


def _zxid(file: Path) -> int:
    """Return the number in a file's name, -1 if there is none."""
    try:
        return int(file.name.split(".")[1], 16)
    except ValueError:
        return -1


def _newest(snapshots: Sequence[Path]) -> _State:
    """Return the state of the newest snapshot that is whole: the last one is not, if its server was killed."""
    reasons = []
    for file in snapshots:
        try:
            return _snapshot(file)
        except (ProtocolError, OSError, EOFError, zlib.error, ConfigError) as error:
            reasons.append(f"{file}: {error}")
    raise ConfigError(f"no snapshot of ZooKeeper is whole: {reasons[0]}")


def _read(file: Path) -> bytes:
    if file.suffix == ".snappy":
        raise ConfigError(
            "it is packed with snappy: restart the server with -Dzookeeper.snapshot.compression.method=gz"
        )
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
        data = opened.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"it has more than {FILE_BYTES_MAX} bytes")
    return data


def _snapshot(file: Path) -> _State:
    data = _read(file)
    reader = Reader(data)
    reader.elements_left = len(data)  # sessions may be more than one message may hold
    if reader.int32() != SNAPSHOT_MAGIC:
        raise ConfigError("it does not begin as a snapshot")
    reader.skip(HEADER_BYTES - 4)
    reader.skip(12 * _count(reader, 12))
    for _ in range(_count(reader, 12)):
        reader.skip(8)
        _skip_acl(reader)
    nodes = {}
    while (path := _text(reader)) != "/":
        nodes[path or ROOT] = _node(reader)
    size = reader.position
    if zlib.adler32(memoryview(data)[:size]) != reader.int64():
        raise ConfigError("its checksum does not fit")
    return _State(_zxid(file), nodes)


def _node(reader: Reader) -> tuple[SourceNode, int]:
    data = _data(reader)
    reader.skip(8 + 8 + 8)  # the ACL, czxid, mzxid
    ctime_ms, mtime_ms, version, creations = reader.int64(), reader.int64(), reader.int32(), reader.int32()
    reader.skip(4)  # the version of the ACL
    owner = reader.int64()
    reader.skip(8)  # pzxid
    node = SourceNode(data=data, version=version, ctime_ms=ctime_ms, mtime_ms=mtime_ms, creations=creations)
    return node, owner


def _replay(log: Path, state: _State) -> None:
    try:
        for transaction in _transactions(log):
            session, _, zxid, time_ms = (
                transaction.int64(), transaction.int32(), transaction.int64(), transaction.int64()
            )  # fmt: skip
            if zxid > state.zxid:
                # Within an epoch of ZooKeeper, which is the upper half, they are consecutive.
                if zxid >> 32 == state.zxid >> 32 and zxid != state.zxid + 1:
                    raise ConfigError(f"{log}: transaction {state.zxid + 1:#x} is missing, and there is {zxid:#x}")
                state.apply(transaction.int32(), transaction, session=session, time_ms=time_ms)
                state.zxid = zxid
    except (ProtocolError, OSError) as error:
        raise ConfigError(f"{log}: {error}") from error


def _transactions(log: Path) -> Iterator[Reader]:
    """Yield what was logged whole: the last transaction may be torn."""
    reader = Reader(_read(log))
    if reader.remaining < HEADER_BYTES:
        return
    if reader.int32() != LOG_MAGIC:
        raise ConfigError(f"{log} does not begin as a log of transactions")
    reader.skip(HEADER_BYTES - 4)
    while reader.remaining >= 12:
        at = reader.position
        checksum, size = reader.int64(), reader.int32()
        if size <= 0 or reader.remaining < size + 1:
            return
        transaction = reader.read_bytes(size)
        if reader.read_bytes(1) != b"B":
            return
        if zlib.adler32(transaction) != checksum:
            raise ConfigError(f"{log}: the checksum of the transaction at byte {at} does not fit")
        yield Reader(transaction)


def _count(reader: Reader, min_size: int) -> int:
    count = max(0, reader.int32())
    reader.expect_elements(count, min_size)
    return count


def _data(reader: Reader) -> bytes | None:
    size = reader.int32()
    return None if size < 0 else reader.read_bytes(size)


def _text(reader: Reader) -> str:
    return reader.string(max(0, reader.int32()))


def _skip_acl(reader: Reader) -> None:
    for _ in range(_count(reader, 12)):
        reader.skip(4)
        _text(reader)
        _text(reader)
