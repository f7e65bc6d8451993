from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.storage.log.space import Space
from kraftlib.storage.reserve import Reserve

RESERVE_BYTES = 1 << 16


def test_a_disk_with_less_than_twice_the_reserve_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space(tmp_path, Reserve(tmp_path, size=RESERVE_BYTES))
    for free, is_full in ((2 * RESERVE_BYTES - 1, True), (2 * RESERVE_BYTES, False)):
        monkeypatch.setattr("kraftlib.storage.log.space.free_bytes", lambda directory, free=free: free)
        space.look()
        assert space.is_full is is_full


def test_it_is_looked_at_again_once_the_log_may_have_used_it_up(tmp_path: Path) -> None:
    space = Space(tmp_path, Reserve(tmp_path, size=RESERVE_BYTES))
    assert space.may_be_used_up, "the reserve is not taken"
    space.look()
    assert not space.may_be_used_up
    space.bytes_appended += RESERVE_BYTES // 4
    assert space.may_be_used_up
    space.look()
    assert not space.may_be_used_up
