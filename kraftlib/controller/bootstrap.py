"""The directory of a new controller, and the feature levels with which its cluster begins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kraftlib.controller.features import SUPPORTED
from kraftlib.controller.versions import METADATA_VERSION
from kraftlib.errors import ConfigError
from kraftlib.metadata.config_records import FeatureLevelRecord
from kraftlib.metadata.frame import decode_record
from kraftlib.records.snapshot import SnapshotReader, StreamSource
from kraftlib.storage import names
from kraftlib.storage.bootstrap import DEFAULT_RELEASE, feature_levels
from kraftlib.storage.directory import FormattedDirectory, format_directory

KRAFT_VERSION: Final = "kraft.version"


def controller_levels(release: str = DEFAULT_RELEASE) -> dict[str, int]:
    """Return the levels with which a cluster of this release begins here: Kafka's, where they are supported.

    Raises: ConfigError, if the release is not known, or its metadata.version is not supported.
    """
    levels = feature_levels(release)
    if levels[METADATA_VERSION] not in SUPPORTED[METADATA_VERSION]:
        raise ConfigError(
            f"release={release!r} has metadata.version {levels[METADATA_VERSION]}, and this controller supports "
            f"{SUPPORTED[METADATA_VERSION]}: choose an older release"
        )
    return {name: level for name, level in levels.items() if name in SUPPORTED}


def format_controller(path: Path | str, *, release: str = DEFAULT_RELEASE, **how: Any) -> FormattedDirectory:
    """Make the directory of a controller; `how` are the other arguments of `kraftlib.format_directory`."""
    return format_directory(path, release=release, levels=controller_levels(release), **how)


def read_levels(directory: Path) -> Mapping[str, int]:
    """Return the feature levels in the `bootstrap.checkpoint` of a directory.

    Raises: ConfigError, if it is not there, or if this controller does not support them; CorruptBatchError.
    """
    path = directory / names.BOOTSTRAP_CHECKPOINT
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        raise ConfigError(f"{path} is missing: it says with which feature levels the cluster begins") from None
    levels: dict[str, int] = {}
    with SnapshotReader(StreamSource(stream)) as reader:
        for batch in reader.batches():
            for value in batch.values():
                record, _ = decode_record(value)
                if isinstance(record, FeatureLevelRecord) and record.name != KRAFT_VERSION:
                    levels[record.name] = record.feature_level
    wrong = [f"{name} {level}" for name, level in levels.items() if level not in SUPPORTED.get(name, ())]
    if wrong or METADATA_VERSION not in levels:
        raise ConfigError(
            f"{path} begins a cluster with {', '.join(wrong) or 'no metadata.version'}, which this controller does not "
            "support: format the directory with `kraftlib controller format`"
        )
    return levels
