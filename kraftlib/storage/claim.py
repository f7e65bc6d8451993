"""Taking possession of a formatted directory: its lock, its identity, and the directory of the log in it."""

from __future__ import annotations

import logging
import re
import time
import uuid
from pathlib import Path
from typing import Final

import attrs

from kraftlib.errors import NotFormattedError, StorageError
from kraftlib.frozen import immutable
from kraftlib.storage import files, names
from kraftlib.storage.election.identity import find_identity
from kraftlib.storage.lock import DirectoryLock
from kraftlib.storage.meta_properties import MetaProperties, write_meta_properties
from kraftlib.types import METADATA_TOPIC_ID, ReplicaId, new_uuid, uuid_text

logger: Final = logging.getLogger(__name__)

_OTHER_TOPIC: Final = re.compile(rb"version: [0-9]{1,4}\s+topic_id: [A-Za-z0-9_-]{22}\s*")
_PARTITION_METADATA: Final = f"version: 0\ntopic_id: {uuid_text(METADATA_TOPIC_ID)}".encode("ascii")


@immutable(kw_only=True)
class Claim:
    """A formatted directory that this process owns until it releases the lock."""

    lock: DirectoryLock
    meta: MetaProperties
    cluster_id: str
    directory_id: uuid.UUID


def check_formatted(path: Path, cluster_id: str | None = None) -> None:
    """Raise NotFormattedError that says how to format it, if the directory belongs to no replica."""
    if find_identity(path)[0] is None:
        raise NotFormattedError(
            f"{path} is not formatted: run `kraftlib format -c FILE --cluster-id "
            f"{cluster_id or '$(kraftlib random-uuid)'}` with the configuration file of this replica, and add"
            " --standalone, --initial-controllers or --no-initial-controllers unless it names the voters",
            path=path,
        )


def claim_directory(
    path: Path, *, node_id: ReplicaId | None = None, cluster_id: str | None = None, file_mode: int = files.FILE_MODE
) -> Claim:
    """Lock a formatted directory and read whose it is; None stands for any node or cluster.

    Raises: NotFormattedError that says how to format it, DirectoryInUseError, ConfigError.
    """
    check_formatted(path, cluster_id)
    lock = DirectoryLock.acquire(path, mode=file_mode)
    try:
        meta, is_lost = find_identity(path)  # once more: the lock is ours now
        if meta is None:
            raise NotFormattedError(f"{path}: {names.META_PROPERTIES} has just been removed", path=path)
        meta.check(path, node_id=node_id, cluster_id=cluster_id)
        directory_id = meta.directory_id or new_uuid()  # a release of Kafka that knew none may have formatted it
        if is_lost or meta.directory_id is None:
            meta = attrs.evolve(meta, directory_id=directory_id)
            write_meta_properties(path, meta, now_ms=time.time_ns() // 1_000_000, file_mode=file_mode)
    except BaseException:
        lock.release()
        raise
    return Claim(lock=lock, meta=meta, cluster_id=meta.cluster_id, directory_id=directory_id)


def check_partition(partition: Path, *, file_mode: int) -> None:
    """Make the directory of the log if it is missing, and see that it is that of the metadata topic."""
    files.refuse_link(partition)
    files.make_directory(partition, mode=files.directory_mode(file_mode))
    path = partition / names.PARTITION_METADATA
    found = files.read_file(path, max_bytes=4_096, may_be_lost=True)
    if found is None:
        files.replace_file(path, _PARTITION_METADATA, mode=file_mode)
    elif found.split() != _PARTITION_METADATA.split():
        if _OTHER_TOPIC.fullmatch(found) and not _differs_by_a_flip(found):
            raise StorageError(f"{path} is of another topic: {found.decode('utf-8', 'replace')!r}", path=path)
        logger.error("%s is damaged: %r; it is written anew, since it can only say one thing", path, found[:100])
        files.replace_file(path, _PARTITION_METADATA, mode=file_mode)


def _differs_by_a_flip(found: bytes) -> bool:
    """Whether this is what should stand there but for one byte."""
    wanted = _PARTITION_METADATA
    return len(found) == len(wanted) and sum(one != other for one, other in zip(found, wanted, strict=True)) == 1
