from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.errors import StorageError
from kraftlib.storage.log.epochs import EpochTable
from tests.storage.builders import a_chain, append, offsets, some_batches


def segments(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


TEN = some_batches(*[1] * 10, size=200)


def test_what_is_written_together_stays_together(tmp_path: Path) -> None:
    """One call, one write, one segment, be it larger than a segment may be."""
    chain = a_chain(tmp_path)
    chain.append(TEN[:1], TEN[0].size)
    chain.append(TEN[1:], sum(batch.size for batch in TEN[1:]))

    assert segments(tmp_path) == [0, 1]


def test_the_last_segment_is_never_deleted(tmp_path: Path) -> None:
    chain = a_chain(tmp_path)
    append(chain, TEN[:6])
    chain.open_files.sync()
    chain.delete_below(6)
    assert segments(tmp_path) == [0, 3]
    chain.open_files.tidy(chain.open_files.condemned_count, chain.active)

    assert segments(tmp_path) == [3]
    append(chain, TEN[6:])
    assert offsets(chain.read(3, 1 << 20)) == offsets(TEN[3:6])


def test_a_truncation_into_a_full_segment_lets_it_grow_again(tmp_path: Path) -> None:
    chain = a_chain(tmp_path, segment_bytes=9_000)
    append(chain, some_batches(*[1] * 60, size=200))
    chain.open_files.sync()
    assert segments(tmp_path) == [0, 33]

    mark = chain.mark_at(25, EpochTable())
    chain.truncate(mark)
    assert mark.end_offset == 25
    append(chain, some_batches(*[2] * 5, base_offset=25, size=200))
    chain.close(30)
    again = a_chain(tmp_path, segment_bytes=9_000)
    assert segments(tmp_path) == [0]
    assert offsets(again.scan())[20:] == [(n, 1) for n in range(20, 25)] + [(n, 2) for n in range(25, 30)]


def test_a_segment_that_is_there_already_is_not_overwritten(tmp_path: Path) -> None:
    chain = a_chain(tmp_path)
    append(chain, TEN[:3])
    stranger = tmp_path / f"{3:020d}.log"
    stranger.write_bytes(b"not ours")

    with pytest.raises(StorageError, match="File exists"):
        append(chain, TEN[3:4])
    assert stranger.read_bytes() == b"not ours"
