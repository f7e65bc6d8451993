"""Finds the segments and checkpoints below a path, with their labels from the layout.

A path is a file, a directory, a glob, a JSON list of them, or a URI that pyarrow understands (`file:`, `s3://`, `gs://`,
`abfs://`, `hdfs://`), with credentials from the environment. Below it, wherever they are:

    cluster=<id>/replica=<n>/<topic>-<p>/00000000000000000000.log      an archive, or replicas side by side
    <node>/__cluster_metadata-0/00000000000000000000.log               a node; labels come from its meta.properties

Names are read by the patterns of `kraftlib.storage.names`, and other files are not looked at. Links are followed. A
directory or other thing of such a name is an error in every mode: otherwise its records would be missing without
notice.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import attrs
from pyarrow import fs as arrow_fs

from kraftlib.analysis.labels import check_apart, labels_of
from kraftlib.analysis.log_files import Kind, Labels, Log, LogFile
from kraftlib.analysis.ranged_files import filesystem, from_uri
from kraftlib.errors import ConfigError, StorageError
from kraftlib.storage import names

_URI: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")
_GLOB: Final = re.compile(r"[*?\[]")


def find_files(
    path: str | os.PathLike[str],
    *,
    pinned: Mapping[str, int] | None = None,
    bootstrap: bool = False,
    layout: str | None = None,
) -> list[LogFile]:
    """Return the segments and checkpoints at or below `path`, each log in order, with their labels.

    `pinned` (path to size) leaves out every other file and later appends. `bootstrap` also finds bootstrap.checkpoint,
    which holds no place in a log. `layout` says what directories are named after. Raises: ConfigError, if there is
    nothing, or if two directories hold the same log and nothing tells them apart.
    """
    wanted = {
        (root, info.path): (root, info, parsed)
        for one in paths_in(path)
        for root, info, parsed in _wanted(one, bootstrap=bootstrap)
    }
    if pinned is not None:
        wanted = {place: found for place, found in wanted.items() if place[1] in pinned}
        gone = _gone(pinned, wanted)
        if gone:
            raise StorageError(f"{min(gone)} was pinned and is gone: the log was compacted meanwhile", path=min(gone))
    places = {(root, _directory_of(info.path)) for root, info, _ in wanted.values()}
    labels = {place[1]: labels_of(*place, layout) for place in places}
    check_apart(labels)
    files = [
        LogFile(
            root=root,
            path=info.path,
            kind=kind,
            offset=offset,
            epoch=epoch,
            size=info.size if pinned is None else _pinned_size(info, pinned[info.path]),
            labels=labels[_directory_of(info.path)],
        )
        for root, info, (kind, offset, epoch) in wanted.values()
    ]
    files.sort(key=lambda file: (file.directory, file.kind.value, file.offset, file.epoch or 0))
    return _with_next(files)


def _gone(pinned: Mapping[str, int], wanted: Iterable[tuple[str, str]]) -> set[str]:
    """Return the pinned files that are no more; a pin may also name a bootstrap.checkpoint, which is not looked for."""
    gone = set(pinned) - {path for _, path in wanted}
    return {path for path in gone if path.rpartition("/")[2] != names.BOOTSTRAP_CHECKPOINT}


def paths_in(path: str | os.PathLike[str]) -> list[str]:
    """Return the paths that a text names: itself, or those of a JSON list. Raises: ConfigError."""
    text = os.fspath(path)
    if not text.startswith('["'):
        return [text]
    try:
        paths = json.loads(text)
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not all(isinstance(one, str) and one for one in paths):
        raise ConfigError(f'{text} is no list of paths: expected JSON, as ["/a", "/b"]')
    return paths


def _wanted(path: str, *, bootstrap: bool) -> Iterator[tuple[str, Any, tuple[Kind, int, int | None]]]:
    """Yield the root, pyarrow's file information, and the parsed name of each segment and checkpoint at or below
    `path`."""
    root, place, pattern = _split_pattern(path)
    found = _listed(root, place, pattern)
    named = len(found) == 1 and found[0].path == place
    wanted = [(info, parsed) for info in found if (parsed := _parse_name(info.base_name)) is not None]
    if named and not wanted:
        raise ConfigError(
            f"{place} is not named as a segment (00000000000000000000.log) or a checkpoint"
            " (00000000000000000000-0000000000.checkpoint) is, so nothing says which offsets it holds"
        )
    wanted = [(info, parsed) for info, parsed in wanted if named or bootstrap or parsed[0] is not Kind.BOOTSTRAP]
    if not wanted:
        raise ConfigError(f"{path} holds no segment (.log) and no checkpoint")
    for info, parsed in wanted:
        yield root, info, parsed


def find_replicas(path: str | os.PathLike[str], *, logs: Iterable[Log], layout: str | None = None) -> dict[Labels, int]:
    """Return the labels of every replica at or below `path`, be there records or not, and where its snapshots reach.

    A replica is known by a segment or checkpoint, by a partition's directory that belongs to a node, or by a node's
    directory without one: that is a replica of `logs`, if there is only one log.
    """
    replicas: dict[Labels, int] = {}
    for one in paths_in(path):
        for labels, end in _replicas_below(one, logs=logs, layout=layout).items():
            replicas[labels] = max(end, replicas.get(labels, 0))
    return replicas


def _replicas_below(path: str, *, logs: Iterable[Log], layout: str | None) -> dict[Labels, int]:
    root, place, pattern = _split_pattern(path)
    storage = filesystem(root)
    info = storage.get_file_info(place)
    found = [info] if info.type == arrow_fs.FileType.File else _below(storage, place)
    wanted = [info for info in found if pattern is None or _matches(info.path, pattern)]
    replicas: dict[Labels, int] = {}
    partitions = set()
    for info in wanted:
        parsed = _parse_name(info.base_name) if info.type == arrow_fs.FileType.File else None
        if parsed is not None and parsed[0] is not Kind.BOOTSTRAP:
            directory = _directory_of(info.path)
            partitions.add(directory)
            labels = labels_of(root, directory, layout)
            end = parsed[1] if parsed[0] is Kind.SNAPSHOT else 0
            replicas[labels] = max(end, replicas.get(labels, 0))
    directories = {_directory_of(info.path) for info in wanted if info.type == arrow_fs.FileType.File}
    directories |= {info.path for info in wanted if info.type == arrow_fs.FileType.Directory}
    for directory in sorted(directories, reverse=True):  # a partition before its node
        if any(known == directory or known.startswith(f"{directory}/") for known in partitions):
            continue
        labels = labels_of(root, directory, layout)
        if labels.topic is None:
            same = {log for log in logs if labels.cluster in (None, log[0])}
            if len(same) != 1:
                continue
            cluster, topic, partition = same.pop()
            labels = attrs.evolve(labels, cluster=cluster, topic=topic, partition=partition)
        if labels.replica is not None:
            partitions.add(directory)
            replicas.setdefault(labels, 0)
    return replicas


def _below(storage: Any, place: str) -> list[Any]:
    try:
        return list(storage.get_file_info(arrow_fs.FileSelector(place, recursive=True)))
    except OSError as error:
        raise StorageError(f"{place} cannot be listed: {error}", path=place) from error


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a path that means the same in every directory; a URI does anyway."""
    text = os.fspath(path)
    return text if _URI.match(text) else os.path.abspath(os.path.expanduser(text))


def _split_pattern(path: str) -> tuple[str, str, str | None]:
    """Return the root, the path up to the first wildcard, and the whole pattern if there is one."""
    if _URI.match(path):
        uri, mark, query = path.partition("?")
        # In a URI a question mark begins the options of the filesystem, so it is no wildcard.
        if not re.search(r"[*\[]", uri):
            place = from_uri(path)[1].rstrip("/")
            return _local_or(path), place, None
        base = _before_wildcard(uri)
        root = base + mark + query
        place = from_uri(root)[1].rstrip("/")
        return _local_or(root), place, place + uri[len(base.rstrip("/")) :]
    place = absolute(path)
    if not _GLOB.search(place) or Path(place).exists():
        return "", place, None
    return "", _before_wildcard(place).rstrip("/") or "/", place


def _local_or(uri: str) -> str:
    return "" if uri.startswith("file:") else uri


def _before_wildcard(path: str) -> str:
    match = _GLOB.search(path)
    return path if match is None else path[: path.rfind("/", 0, match.start()) + 1]


def _listed(root: str, place: str, pattern: str | None) -> list[Any]:
    """Return what pyarrow knows of every file at or below `place` that the pattern admits."""
    storage = filesystem(root)
    try:
        info = storage.get_file_info(place)
        if info.type == arrow_fs.FileType.NotFound:
            raise ConfigError(f"{place} does not exist")
        if info.type == arrow_fs.FileType.File:
            return [info]
        found = _below(storage, place)
        directories = [place, *(info.path for info in found if info.type == arrow_fs.FileType.Directory)]
        dangling = [] if root else [path for directory in directories for path in _dangling_links(directory)]
    except OSError as error:
        raise StorageError(f"{place} cannot be listed: {error}", path=place) from error
    for path in dangling:
        if pattern is None or _matches(path, pattern):
            raise _no_file(
                path, f"links to {os.path.realpath(path)}, where there is none: mount it, or remove the link"
            )
    wanted = found if pattern is None else [info for info in found if _matches(info.path, pattern)]
    for info in wanted:
        if info.type != arrow_fs.FileType.File and _parse_name(info.base_name) is not None:
            raise _no_file(info.path, "is no file that can be read: it is a directory, a pipe, or the like")
    return [info for info in wanted if info.type == arrow_fs.FileType.File]


def _dangling_links(directory: str) -> list[str]:
    """Return the links to nothing that are named as segments or checkpoints: pyarrow leaves them out of its list.

    Raises: OSError.
    """
    try:
        with os.scandir(directory) as entries:
            return [
                entry.path
                for entry in entries
                if entry.is_symlink() and _parse_name(entry.name) is not None and not os.path.exists(entry.path)
            ]
    except FileNotFoundError:
        return []  # a replica has removed the directory meanwhile, as after a repair


def _no_file(path: str, what: str) -> StorageError:
    return StorageError(f"{path} is named as a segment or checkpoint and {what}", path=path)


def _matches(path: str, pattern: str) -> bool:
    """Whether `path`, or a directory that it is in, has the form of `pattern`, part by part."""
    parts, wanted = path.split("/"), pattern.split("/")
    return len(parts) >= len(wanted) and all(map(fnmatchcase, parts, wanted))


def _parse_name(name: str) -> tuple[Kind, int, int | None] | None:
    base = names.parse_segment_name(name)
    if base is not None:
        return Kind.LOG, base, None
    snapshot = names.parse_checkpoint_name(name)
    if snapshot is not None:
        return Kind.SNAPSHOT, snapshot.offset, snapshot.epoch
    return (Kind.BOOTSTRAP, 0, 0) if name == names.BOOTSTRAP_CHECKPOINT else None


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0]


def _pinned_size(info: Any, size: int) -> int:
    if info.size < size:
        raise StorageError(
            f"{info.path} has {info.size} bytes and had {size} when it was pinned: the log was truncated meanwhile",
            path=info.path,
            position=info.size,
        )
    return size


def _with_next(files: Sequence[LogFile]) -> list[LogFile]:
    """Tell each segment which one follows it. `files` are sorted."""
    snapshots = {(file.directory, file.offset) for file in files if file.kind is Kind.SNAPSHOT}
    out: list[LogFile] = []
    for file in files:
        before = out[-1] if out else None
        if before and before.kind is file.kind is Kind.LOG and before.directory == file.directory:
            covered = (file.directory, file.offset) in snapshots
            out[-1] = attrs.evolve(before, next_offset=file.offset, is_followed_by_snapshot=covered)
        out.append(file)
    return out
