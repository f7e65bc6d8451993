"""Nodes of the tree as keys of the store.

    znode/a/b//         the record of the node /a/b: its data, its version, when it was created
    znode/a/b///        the number of children that were ever created below it; an ephemeral node has no such key
    znode/a/b//c        an entry for each child, without a value

No path has an empty component, so no two of these are ever equal. One prefix, `znode/a/b//`, has all that is asked
about a node, and one answer is one state. Record and entry of an ephemeral node belong to the session of its creator,
and end with it. The root has no record until a client writes its data.

ZooKeeper counts in the same way: the next sequence number is the number of creations, and cversion is twice that less
the children that are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs
from kazoo.protocol.states import ZnodeStat

from kraftlib.codec.declared import Message, binary, int32, int64, message
from kraftlib.coordination.commands import decode, encode
from kraftlib.coordination.messages import NONE, Answer
from kraftlib.types import Offset

ROOT: Final = "/"
SCOPE: Final = "znode"


def directory(path: str) -> str:
    """Return the beginning of all keys of a node, which is also the key of its record."""
    return f"{SCOPE}{path.rstrip('/')}//"


def record_key(path: str) -> str:
    """Return the key of a node's record."""
    return directory(path)


def counter_key(path: str) -> str:
    """Return the key of the number of children that were created below a node."""
    return directory(path) + "/"


def entry_key(path: str) -> str:
    """Return the key of a node in the directory of its parent."""
    parent, name = split(path)
    return directory(parent) + name


def split(path: str) -> tuple[str, str]:
    """Return the path of the parent and the name."""
    parent, _, name = path.rpartition("/")
    return parent or ROOT, name


def path_of(key: str) -> str:
    """Return the path of the node that has this record."""
    return key.removeprefix(SCOPE).removesuffix("//") or ROOT


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class Record(Message):
    """The value of a node's record. Its revision is the mzxid."""

    version: int = int32("0+")
    created: int = int64("0+", default=NONE)
    """The czxid; `NONE` in the first record, whose own revision it is."""
    ctime_ms: int = int64("0+")
    mtime_ms: int = int64("0+")
    data: bytes | None = binary("0+", nullable="0+", default=None)

    def encoded(self) -> bytes:
        """Return its bytes."""
        return encode(self)


def is_creation(record: Record) -> bool:
    """Whether this record has created its node."""
    return record.version == 0 and record.created == NONE


@attrs.frozen(kw_only=True)
class Node:
    """A node as of one state of the tree."""

    record: Record
    revision: Offset = NONE
    """Of the record; `NONE` for a root without one."""
    owner: Offset = NONE
    """The opening of the session of an ephemeral node."""
    creations: int = 0
    counted: Offset = NONE
    """The revision of `creations`."""
    children: tuple[str, ...] = ()

    @property
    def is_ephemeral(self) -> bool:
        """Whether it ends with a session."""
        return self.owner != NONE

    @property
    def stat(self) -> ZnodeStat:
        """The statistics that ZooKeeper gives. Deletions of children do not count for pzxid."""
        created = self.revision if self.record.created == NONE else self.record.created
        count = len(self.children)
        return ZnodeStat(
            czxid=created,
            mzxid=self.revision,
            ctime=self.record.ctime_ms,
            mtime=self.record.mtime_ms,
            version=self.record.version,
            cversion=2 * self.creations - count,
            aversion=0,
            ephemeralOwner=session_number(self.owner),
            dataLength=len(self.record.data or b""),
            numChildren=count,
            pzxid=max(created, self.counted),
        )


def session_number(opened: Offset) -> int:
    """Return what stands for a session where ZooKeeper has a positive number of 64 bits; 0, if there is none."""
    return opened + 1


def node_of(path: str, rows: Iterable[Answer.Row]) -> Node | None:
    """Return the node that has these keys, or None if it has no record."""
    prefix = directory(path)
    found, creations, counted = None, 0, NONE
    children = []
    for row in rows:
        name = row.name.removeprefix(prefix)
        if not name:
            found = row
        elif name == "/":
            creations, counted = int(row.value or b"0"), row.revision
        else:
            children.append(name)
    if found is None and path != ROOT:
        return None
    return Node(
        record=Record(created=0, data=b"") if found is None else decode(Record, found.value or b""),
        revision=NONE if found is None else found.revision,
        owner=NONE if found is None else found.session,
        creations=creations,
        counted=counted,
        children=tuple(children),
    )
