"""From a backup, or a checkpoint, to the directory of a new replica, of a new cluster, with new voters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kraftlib.errors import ConfigError
from kraftlib.offline.backup import Manifest, copy_into, manifest_of, opened_backup, verify_backup
from kraftlib.storage import files
from kraftlib.storage.bootstrap import InitialController
from kraftlib.storage.directory import format_directory
from kraftlib.storage.new_quorum import begin_new_quorum
from kraftlib.types import OffsetAndEpoch, ReplicaId


def restore_backup(
    source: Path,
    directory: Path,
    *,
    node_id: ReplicaId,
    cluster_id: str,
    controllers: Sequence[InitialController] = (),
    static_voters: Sequence[ReplicaId] = (),
    listener_name: str = "CONTROLLER",
    file_mode: int = files.FILE_MODE,
    progress: Callable[[int], object] = lambda size: None,
) -> tuple[Manifest, OffsetAndEpoch]:
    """Make `directory` that of a new replica which begins with a backup; return the manifest and where its log ends.

    Every voter of the new cluster is restored from the same backup with the same list of voters: `controllers` of a
    dynamic quorum, this node among them, or `static_voters` as in the configuration. The backup is verified first.
    It may be a single checkpoint, which knows of no cluster: its manifest names none.

    Raises: ConfigError, also for the old cluster's id; StorageError, CorruptBatchError.
    """
    with opened_backup(source) as opened:
        manifest = verify_backup(opened, progress=progress) if opened.is_dir() else manifest_of(opened)
        if cluster_id == manifest.cluster_id:
            raise ConfigError(
                f"cluster_id={cluster_id!r} is that of the backup: the old cluster may still be there, so the new one"
                " needs an id of its own (`kraftlib random-uuid`)"
            )
        own = next((controller for controller in controllers if controller.id == node_id), None)
        if controllers and own is None:
            raise ConfigError(f"node_id={node_id} is not among the voters {', '.join(map(str, controllers))}")
        if static_voters and node_id not in static_voters:
            raise ConfigError(f"node_id={node_id} is not among the voters {', '.join(map(str, static_voters))}")
        if manifest.kraft_version > 0 and not controllers:
            raise ConfigError(
                "the voters of this backup stand in its log, so those of the new cluster must, too: name them"
            )
        ends: list[OffsetAndEpoch] = []

        def fill(partition: Path) -> None:
            copy_into(
                opened if opened.is_dir() else opened.parent,
                manifest,
                partition,
                file_mode=file_mode,
                progress=progress,
            )
            end = begin_new_quorum(
                partition,
                epoch=manifest.end_epoch + 1,
                timestamp_ms=manifest.created_ms,
                controllers=controllers,
                static_voters=static_voters,
                listener_name=listener_name,
                file_mode=file_mode,
            )
            ends.append(end)

        # A replica that had only a part of the backup would start, and serve it: until all is there it has no name.
        format_directory(
            directory,
            node_id=node_id,
            cluster_id=cluster_id,
            directory_id=None if own is None else own.directory_id,
            no_initial_controllers=bool(controllers),
            static_voters=static_voters,
            file_mode=file_mode,
            fill=fill,
        )
    return manifest, ends[0]
