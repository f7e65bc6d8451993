"""The garbage collector of a replica's process."""

from __future__ import annotations

import gc
from pathlib import Path

from kraftlib.cli.collector import YOUNG_OBJECTS
from kraftlib.cli.run import serve, store_of
from kraftlib.config import RaftConfig
from tests.cli.processes import single


async def test_the_garbage_collector_passes_over_a_replica_that_has_started(tmp_path: Path) -> None:
    config = RaftConfig.from_toml(single(tmp_path))
    client, service = store_of(config)
    before, thresholds = gc.get_freeze_count(), gc.get_threshold()
    try:
        async with serve(client, service, None):
            assert gc.get_freeze_count() > before + 10_000
            assert gc.get_threshold() == (YOUNG_OBJECTS, *thresholds[1:])
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
