"""Where an archive lies and whose it is.

    <root>/cluster=<id>/replica=<n>/
      kraftlib-archive.json                       which cluster, which observer, which version of this layout
      .lock                                       held while a process writes
      __cluster_metadata-0/
        00000000000000000000.log  .index          segments, as in any replica
        00000000000000012345-0000000007.checkpoint

Directories of the form key=value are columns to Spark, so that a root with many clusters is one table. There is no
`meta.properties`: no replica can be started on an archive by mistake, and then delete what is old.
"""

from __future__ import annotations

import json
import os
import random
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from kraftlib.errors import ConfigError, NotFormattedError, StorageError
from kraftlib.storage import files, names, notes
from kraftlib.storage.lock import DirectoryLock
from kraftlib.storage.snapshots.snapshot_files import list_snapshots
from kraftlib.types import Offset, OffsetAndEpoch, ReplicaId

MARKER: Final = "kraftlib-archive.json"
LAYOUT_VERSION: Final = 1
OBSERVERS_FROM: Final = 1_000_000_000
"""Ids of observers are drawn from here on, far from those of voters and brokers."""

_CLUSTER: Final = "cluster="
_REPLICA: Final = "replica="
_MARKER_MAX_BYTES: Final = 4_096


@attrs.frozen(kw_only=True)
class ArchiveDirectory:
    """One archive: the log of one cluster as one observer received it."""

    path: Path
    cluster_id: str
    node_id: ReplicaId

    @property
    def partition(self) -> Path:
        """Where segments and checkpoints are."""
        return self.path / names.PARTITION_DIRECTORY

    def lock(self) -> DirectoryLock:
        """Become the only writer. Raises: DirectoryInUseError."""
        return DirectoryLock.acquire(self.path)

    def segment_offsets(self) -> list[Offset]:
        """Return the base offsets of the segments, ascending."""
        found = map(names.parse_segment_name, files.list_names(self.partition))
        return sorted(base_offset for base_offset in found if base_offset is not None)

    def checkpoints(self) -> list[OffsetAndEpoch]:
        """Return the ids of the checkpoints, ascending."""
        return list_snapshots(self.partition)


def open_archive(
    root: Path, *, cluster_id: str, fleet: bool = False, file_mode: int = files.FILE_MODE
) -> ArchiveDirectory:
    """Return the archive of this cluster below `root`, made if need be.

    A root belongs to one cluster, so that a wrong address is noticed; with `fleet` it may hold several.
    Raises: ConfigError, if it is another cluster's; StorageError.
    """
    if not cluster_id:
        raise ConfigError("an archive belongs to a cluster, and the cluster id is empty")
    present = find_archives(root) if root.exists() else []
    own = next((archive for archive in present if archive.cluster_id == cluster_id), None)
    if own is not None:
        return own
    if present and not fleet:
        raise ConfigError(
            f"{root} is the archive of cluster {present[0].cluster_id!r}, and cluster {cluster_id!r} is followed now:"
            " give it a directory of its own, or allow several clusters in this one (--fleet)"
        )
    return _make(root, cluster_id, file_mode)


def find_archives(root: Path) -> Sequence[ArchiveDirectory]:
    """Return the archives below `root`, which may be a root, the directory of a cluster, or an archive itself.

    Raises: NotFormattedError, if `root` does not exist; StorageError for one that cannot be understood.
    """
    if not root.is_dir():
        raise NotFormattedError(f"{root} is no directory: `kraftlib archive follow` makes an archive", path=root)
    if (root / MARKER).exists():
        return [_read(root)]
    below = [root] if root.name.startswith(_CLUSTER) else [root / name for name in _directories(root, _CLUSTER)]
    return [
        _read(cluster / name)
        for cluster in below
        for name in _directories(cluster, _REPLICA)
        if (cluster / name / MARKER).exists()
    ]


def _directories(path: Path, prefix: str) -> list[str]:
    return [name for name in files.list_names(path) if name.startswith(prefix) and (path / name).is_dir()]


def _make(root: Path, cluster_id: str, file_mode: int) -> ArchiveDirectory:
    """Make a new archive; the marker comes last, so that one whose making was cut off is made again."""
    node_id = random.randrange(OBSERVERS_FROM, 2**31)
    mode = files.directory_mode(file_mode)
    with files.storage_errors("make the directory", root):
        root.mkdir(parents=True, exist_ok=True, mode=mode)
    cluster = root / f"{_CLUSTER}{urllib.parse.quote(cluster_id, safe='')}"
    archive = ArchiveDirectory(path=cluster / f"{_REPLICA}{node_id}", cluster_id=cluster_id, node_id=node_id)
    for path in (cluster, archive.path, archive.partition):
        files.refuse_link(path)
        files.make_directory(path, mode=mode)
    marker = {"version": LAYOUT_VERSION, "cluster_id": cluster_id, "node_id": node_id}
    files.replace_file(archive.path / MARKER, json.dumps(marker).encode(), mode=file_mode)
    return archive


def _read(path: Path) -> ArchiveDirectory:
    marker = path / MARKER
    data = files.read_file(marker, max_bytes=_MARKER_MAX_BYTES) or b""
    try:
        told = notes.parse(data)
        version, cluster_id, node_id = told["version"], told["cluster_id"], told["node_id"]
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{marker} does not say whose archive it is: {data[:80]!r}", path=marker) from error
    if version != LAYOUT_VERSION:
        raise StorageError(
            f"{marker} is of version {version!r}, this release knows {LAYOUT_VERSION}: use a newer one", path=marker
        )
    if not isinstance(cluster_id, str) or isinstance(node_id, bool) or not isinstance(node_id, int) or node_id < 0:
        raise StorageError(f"{marker} names cluster {cluster_id!r} and replica {node_id!r}", path=marker)
    return ArchiveDirectory(path=Path(os.fspath(path)), cluster_id=cluster_id, node_id=node_id)
