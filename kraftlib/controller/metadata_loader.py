"""`MetadataLoader`: pictures of the cluster on every node, and notices of its changes.

    loader = MetadataLoader(listener)
    controller.client.register(loader)                                            # on a controller
    RaftClient(config, serde=MetadataSerde(), listener=loader)                    # on an observer

It folds committed records, next to the other work of the replica, and after each group of committed batches puts a new
picture in place of the last one. Records of one batch, and of one transaction of metadata, show together (KIP-868).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kraftlib.metadata.delta import MetadataDelta, difference
from kraftlib.metadata.image import ClusterImage
from kraftlib.metadata.published import MetadataImage
from kraftlib.metadata.serde import UnknownRecord
from kraftlib.runtime.committed import BatchReader, LoadedSnapshot
from kraftlib.runtime.listener import Listener
from kraftlib.runtime.pace import Pacer

OnDelta = Callable[[MetadataDelta], object]
"""Called on the loop of the replica: it must not block. An exception in it stops the loader."""


class MetadataLoader(Listener):
    """Keeps a picture of the cluster, and tells each of `listeners` what is new in it.

    The replica must decode metadata records: that of a `MetadataController` does, that of an observer has the serde
    `MetadataSerde`. A partition costs about 350 bytes of memory, on a controller beside its own state.
    """

    def __init__(self, *listeners: OnDelta) -> None:
        self.image = MetadataImage()
        """The newest picture. Take it once and look at it: the next one is another object."""
        self._listeners = listeners
        self._state = ClusterImage()

    @property
    def faults(self) -> tuple[str, ...]:
        """The records that did not fit or are not known, most likely from a newer Kafka: the picture lacks them."""
        return tuple(self._state.faults)

    def handle_commit(self, reader: BatchReader) -> None:
        """Fold committed batches, and publish a picture."""
        end_offset = self.image.end_offset
        for batch in reader:
            _fold(self._state, (record.value for record in batch.records))
            end_offset = batch.last_offset + 1
        before = self.image
        self.image, touched = self._state.publish(end_offset)
        self._tell(difference(before, self.image, touched))

    def handle_load_snapshot(self, reader: LoadedSnapshot) -> None:
        """Begin anew with a snapshot. It is read beside the loop; until it is whole the last picture stands."""
        reader.hold(step=Pacer().step)
        loading = asyncio.get_running_loop().run_in_executor(None, _loaded, reader)
        loading.add_done_callback(partial(self._begin_anew, reader))

    def _begin_anew(self, reader: LoadedSnapshot, loading: asyncio.Future[tuple[ClusterImage, MetadataImage]]) -> None:
        try:
            state, image = loading.result()
            before, self._state, self.image = self.image, state, image
            self._tell(difference(before, image))
        except Exception as error:  # noqa: BLE001 - of the snapshot, or of a listener: `close` tells them apart
            reader.close(error)
        else:
            reader.close()

    def _tell(self, delta: MetadataDelta) -> None:
        for listener in self._listeners:
            listener(delta)


def _fold(state: ClusterImage, values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, UnknownRecord):
            state.add_fault(f"metadata record of unknown type {value.api_key}, version {value.version}")
        else:
            state.apply(value)


def _loaded(reader: LoadedSnapshot) -> tuple[ClusterImage, MetadataImage]:
    state = ClusterImage()
    _fold(state, reader.values())
    image, _ = state.publish(reader.snapshot_id.offset)
    return state, image
