"""A small run of the catch-up benchmark: two processes, a relay, a snapshot that arrives."""

from __future__ import annotations

from pathlib import Path

from tools.bench.catch_up import as_text, measure_catch_up


async def test_a_snapshot_arrives_and_what_was_sent_is_counted(tmp_path: Path) -> None:
    said: list[str] = []
    found = await measure_catch_up(tmp_path, 4, say=said.append)

    assert found["snapshot_bytes"] > 4 << 20
    assert found["sent_bytes"] >= found["snapshot_bytes"]
    assert said == ["writing a snapshot of 4 MiB", "catching up"]
    assert f"{found['kills']} x kill -9" in as_text(found)
