"""The labels of a directory: the replica and the log of its files, by its path or its meta.properties."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from pyarrow import fs as arrow_fs

from kraftlib.analysis.layout import labels_in
from kraftlib.analysis.log_files import Labels
from kraftlib.analysis.ranged_files import filesystem
from kraftlib.errors import ConfigError, StorageError
from kraftlib.storage import names
from kraftlib.storage.meta_properties import parse_properties

_PARTITION: Final = re.compile(r"(.+)-([0-9]{1,9})(\.[0-9a-f]{32}-(?:delete|future|stray))?", re.ASCII)
"""Topic and partition. A partition that a broker puts aside has a suffix, which makes it a topic of its own here."""
_LABELS: Final = ("cluster", "replica")
_META_MAX_BYTES: Final = 1 << 16


def labels_of(root: str, directory: str, layout: str | None) -> Labels:
    """Return what the path says, and what the meta.properties beside it says where the path is silent.

    Raises: ConfigError, if the two name different clusters.
    """
    said = {}
    for part in directory.split("/"):
        key, _, value = part.partition("=")
        if key in _LABELS and value:
            said[key] = unquote(value)
    partition = _PARTITION.fullmatch(directory.rpartition("/")[2])
    if layout is not None:
        said |= labels_in(directory, layout)
    meta = _meta_properties(root, directory.rpartition("/")[0] if partition else directory)
    cluster, replica = said.get("cluster"), said.get("replica")
    if cluster is not None and meta.get("cluster.id", cluster) != cluster:
        raise ConfigError(
            f"{directory} is labelled cluster={cluster}, and its meta.properties says {meta['cluster.id']}: clusters"
            " are mixed; put each below the label of its own"
        )
    return Labels(
        cluster=cluster if cluster is not None else meta.get("cluster.id"),
        replica=replica if replica is not None else meta.get("node.id"),
        topic=said.get("topic", partition[1] + (partition[3] or "") if partition else None),
        partition=int(said["partition"]) if "partition" in said else int(partition[2]) if partition else None,
    )


def _meta_properties(root: str, directory: str) -> dict[str, str]:
    path = f"{directory}/{names.META_PROPERTIES}"
    storage = filesystem(root)
    try:
        if storage.get_file_info(path).type != arrow_fs.FileType.File:
            return {}
        with storage.open_input_file(path) as stream:
            return parse_properties(stream.read(_META_MAX_BYTES))
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}", path=path) from error


def check_apart(labels: Mapping[str, Labels]) -> None:
    """Refuse two directories with the same labels: their rows could not be told apart. Raises: ConfigError."""
    twice = [label for label, count in Counter(labels.values()).items() if count > 1]
    if twice:
        both = sorted(directory for directory, label in labels.items() if label == twice[0])
        raise ConfigError(
            f"{both[0]} and {both[1]} hold the same log and nothing tells their rows apart: load one of them, or lay"
            " them out as cluster=<id>/replica=<n>/<topic>-<partition>/"
        )
