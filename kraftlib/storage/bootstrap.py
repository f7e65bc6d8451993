"""The two snapshots of a new directory: the first voters, and the records that begin a Kafka cluster.

* `__cluster_metadata-0/0…0-0…0.checkpoint` holds KRaftVersion 1 and the first voters, and no data. It is written where
  a quorum begins: with `--standalone` and with `--initial-controllers`.
* `bootstrap.checkpoint` holds feature levels for the first active controller of a Kafka cluster. It is always written.

Both are snapshots of end offset 0 and epoch 0. The first leader of a dynamic quorum repeats the voters in its first
batch, so that replicas which were formatted without them learn them from the log (KIP-853).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from kraftlib.errors import ConfigError
from kraftlib.frozen import immutable
from kraftlib.records.control import KRAFT_VERSION_MAX
from kraftlib.records.control_messages import VotersRecord
from kraftlib.records.snapshot import SnapshotWriter
from kraftlib.types import Endpoint, ReplicaId, parse_endpoint, parse_uuid, uuid_text

METADATA_VERSION: Final = "metadata.version"

_ELR, _GROUP, _SHARE = "eligible.leader.replicas.version", "group.version", "share.version"
_STREAMS, _TRANSACTION = "streams.version", "transaction.version"

RELEASES: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType(
    {
        "3.9": {METADATA_VERSION: 21},
        "4.0": {METADATA_VERSION: 25, _GROUP: 1, _TRANSACTION: 2},
        "4.1": {METADATA_VERSION: 27, _ELR: 1, _GROUP: 1, _TRANSACTION: 2},
        "4.2": {METADATA_VERSION: 29, _ELR: 1, _GROUP: 1, _SHARE: 1, _STREAMS: 1, _TRANSACTION: 2},
        "4.3": {METADATA_VERSION: 30, _ELR: 1, _GROUP: 1, _SHARE: 1, _STREAMS: 1, _TRANSACTION: 2},
        "4.4": {METADATA_VERSION: 33, _ELR: 1, _GROUP: 1, _SHARE: 2, _STREAMS: 1, _TRANSACTION: 2},
    }
)
"""The levels with which each release of Kafka formats. A controller does not start on levels that it does not know."""

DEFAULT_RELEASE: Final = "4.3"
"""The newest one that is complete: the tools of 4.4.0 were never published. Later controllers start on it as well."""

FEATURE_LEVELS: Final[Mapping[str, int]] = RELEASES[DEFAULT_RELEASE]


def feature_levels(release: str) -> Mapping[str, int]:
    """Return the levels of a release of Kafka: `3.9`, `4.3.1`, `3.9-IV0`. Raises: ConfigError, if it is not known."""
    match = re.match(r"([0-9]+\.[0-9]+)(?:[.-].*)?$", release, re.ASCII)
    levels = RELEASES.get(match[1]) if match is not None else None
    if levels is None:
        raise ConfigError(f"release={release!r} is not known: choose one of {', '.join(RELEASES)}")
    return levels


_CONTROLLER: Final = re.compile(r"([0-9]{1,10})@(.+):([A-Za-z0-9_-]{22})", re.ASCII)


@immutable
class InitialController:
    """One of the first voters of a dynamic quorum."""

    id: ReplicaId
    endpoint: Endpoint
    directory_id: uuid.UUID

    def __str__(self) -> str:
        return f"{self.id}@{self.endpoint}:{uuid_text(self.directory_id)}"


def parse_initial_controllers(text: str) -> tuple[InitialController, ...]:
    """Read a comma-separated list of `id@host:port:directoryId`, the same on every first voter.

    Raises: ConfigError, also if an id or a directory id stands there twice.
    """
    controllers = tuple(_parse_controller(part.strip()) for part in text.split(",") if part.strip())
    check_controllers(controllers)
    return controllers


def _parse_controller(text: str) -> InitialController:
    match = _CONTROLLER.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r} is no initial controller: expected id@host:port:directoryId")
    return InitialController(int(match[1]), parse_endpoint(match[2]), parse_uuid(match[3]))


def check_controllers(controllers: Sequence[InitialController]) -> None:
    """Check that there are controllers, and none twice."""
    if not controllers:
        raise ConfigError("initial controllers: the list is empty")
    for what, values in (
        ("id", [controller.id for controller in controllers]),
        ("directory id", [controller.directory_id for controller in controllers]),
    ):
        if len(set(values)) != len(values):
            raise ConfigError(f"initial controllers {','.join(map(str, controllers))}: a {what} stands there twice")


def first_voters(controllers: Sequence[InitialController], *, listener_name: str) -> VotersRecord:
    """Return the voter set of a new dynamic quorum, in the order of ids."""
    feature = VotersRecord.KRaftVersionFeature(min_supported_version=0, max_supported_version=KRAFT_VERSION_MAX)
    return VotersRecord(
        voters=tuple(
            VotersRecord.Voter(
                voter_id=controller.id,
                voter_directory_id=controller.directory_id,
                endpoints=(
                    VotersRecord.Endpoint(
                        name=listener_name.upper(), host=controller.endpoint.host, port=controller.endpoint.port
                    ),
                ),
                kraft_version_feature=feature,
            )
            for controller in sorted(controllers, key=lambda controller: controller.id)
        )
    )


def voters_checkpoint(voters: VotersRecord, *, now_ms: int) -> bytes:
    """Return the snapshot with which a dynamic quorum begins; `now_ms` is wall-clock time."""
    parts: list[bytes | memoryview] = []
    writer = SnapshotWriter(
        parts.append, epoch=0, last_contained_log_timestamp=now_ms, kraft_version=KRAFT_VERSION_MAX, voters=voters
    )
    writer.freeze()
    return b"".join(parts)


def records_checkpoint(*, now_ms: int, levels: Mapping[str, int] = FEATURE_LEVELS) -> bytes:
    """Return the content of `bootstrap.checkpoint`: metadata.version first, then the other features by name."""
    from kraftlib.metadata.config_records import FeatureLevelRecord  # only a format writes records
    from kraftlib.metadata.frame import encode_record

    parts: list[bytes | memoryview] = []
    writer = SnapshotWriter(parts.append, epoch=0, last_contained_log_timestamp=0, timestamp_ms=now_ms)
    for name in sorted(levels, key=lambda name: (name != METADATA_VERSION, name)):
        writer.append([encode_record(FeatureLevelRecord(name=name, feature_level=levels[name]), 0)])
    writer.freeze()
    return b"".join(parts)
