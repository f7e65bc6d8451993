"""`kraftlib.json`: that a replica has run in this directory, and which one. One line of JSON.

    {"layout":1,"node_id":1,"cluster_id":"KamCna3aR0Ca0-LOI6hKfg","directory_id":"e9MFl328Q-S5WPDKSl6znA","crc":305419896}

It is written before the first vote, so that a lost vote is noticed though the log is still empty. The rest is a mirror
of `meta.properties`, which has no checksum and cannot be derived from anything else: a directory id that changes makes
another replica of this one. `layout` is the version of all side files of ours; a file of another layout is left alone.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import attrs

from kraftlib.errors import ConfigError, StorageError
from kraftlib.storage import files, names, notes
from kraftlib.storage.meta_properties import MetaProperties, MetaPropertiesDamagedError, read_meta_properties
from kraftlib.storage.notes import NoteError
from kraftlib.types import parse_uuid, uuid_text

logger: Final = logging.getLogger(__name__)

SIDE_FILE_LAYOUT: Final = 1
"""Version of the layout of kraftlib's own files."""

_MAX_BYTES: Final = 1 << 16


def mark_as_run(directory: Path, identity: MetaProperties | None, *, file_mode: int) -> None:
    """Note that a replica runs in the directory of this log, and which one, if that is known."""
    path = directory / names.HAS_RUN
    known = files.read_file(path, max_bytes=_MAX_BYTES, may_be_lost=True)
    if known is not None and (identity is None or not _is_ours(known) or recall_identity(directory) == identity):
        return
    files.replace_file(path, _encode(identity), mode=file_mode)


def _encode(identity: MetaProperties | None) -> bytes:
    fields: dict[str, object] = {"layout": SIDE_FILE_LAYOUT}
    if identity is None:
        return notes.encode(fields, compact=False)
    fields |= {"node_id": identity.node_id, "cluster_id": identity.cluster_id}
    fields["directory_id"] = None if identity.directory_id is None else uuid_text(identity.directory_id)
    return notes.seal(notes.encode(fields))


def _is_ours(data: bytes) -> bool:
    """Whether this may be written over: it is of our layout, or cannot be read."""
    try:
        return notes.parse(data).get("layout") in (None, SIDE_FILE_LAYOUT)
    except NoteError:
        return True


def recall_identity(directory: Path) -> MetaProperties | None:
    """Return which replica ran in the directory of this log; None, if that was not noted, or cannot be believed."""
    data = files.read_file(directory / names.HAS_RUN, max_bytes=_MAX_BYTES, may_be_lost=True) or b""
    try:
        fields = notes.parse_sealed(data)
    except NoteError:
        return None
    node_id, cluster_id, directory_id = fields.get("node_id"), fields.get("cluster_id"), fields.get("directory_id")
    if fields.get("layout") != SIDE_FILE_LAYOUT or type(node_id) is not int or not isinstance(cluster_id, str):
        return None
    try:
        return MetaProperties(
            node_id=node_id,
            cluster_id=cluster_id,
            directory_id=None if directory_id is None else parse_uuid(directory_id),
        )
    except (ConfigError, TypeError):
        return None


def find_identity(path: Path) -> tuple[MetaProperties | None, bool]:
    """Return the identity of the directory `path`, None if it has none, and whether `meta.properties` must be written
    anew.

    Raises: StorageError, if that file is damaged and has no mirror, or if both are whole and say different things.
    """
    recalled = recall_identity(path / names.PARTITION_DIRECTORY)
    try:
        found = read_meta_properties(path)
    except MetaPropertiesDamagedError as damage:
        if recalled is None:
            raise StorageError(
                f"{damage}: it is damaged, and nothing says what stood there. Restore it from a backup, or write it by"
                " hand: node.id, cluster.id, version=1, and the directory.id that `kraftlib quorum describe` of another"
                " replica shows for this node",
                path=damage.path,
            ) from damage
        logger.error("%s; it is written anew from %s", damage, names.HAS_RUN)
        return recalled, True
    if found is None and recalled is not None:
        logger.error("%s: %s is gone; it is written anew from %s", path, names.META_PROPERTIES, names.HAS_RUN)
        return recalled, True
    if found is None or recalled is None or found == recalled:
        return found, False
    if attrs.evolve(recalled, directory_id=None) == found:
        logger.error("%s: directory.id is gone; it is written anew from %s", path, names.HAS_RUN)
        return recalled, True
    if recalled.directory_id is not None or attrs.evolve(found, directory_id=None) != recalled:
        raise StorageError(
            f"{path / names.META_PROPERTIES} says {found}, and a replica that ran here was {recalled}: one of the two"
            f" has changed. Put {names.META_PROPERTIES} right; or, if it is right, remove"
            f" {names.PARTITION_DIRECTORY}/{names.HAS_RUN}",
            path=path / names.META_PROPERTIES,
        )
    return found, False
