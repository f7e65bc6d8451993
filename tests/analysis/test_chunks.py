"""What is checked batch by batch; the reader's tests have the damage itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.analysis.chunks import chunks, is_beginning_of_batch, length_adds_up
from kraftlib.analysis.headers import walk
from kraftlib.analysis.reading import options_of
from kraftlib.analysis.splits import plan
from kraftlib.analysis.way_on import end_of_records
from kraftlib.errors import CorruptBatchError
from kraftlib.records.compression import Codec
from tests.analysis.logs import values_batch, write_log


def test_chunks_hold_every_batch_once_whatever_their_size(tmp_path: Path) -> None:
    write_log(tmp_path, [values_batch([b"v"] * (1 + n % 5), base_offset=10 * n) for n in range(1)])
    batches = [values_batch([b"v" * n], base_offset=n) for n in range(40)]
    write_log(tmp_path, batches)
    for size in (1, 100, 1_000, 1 << 20):
        options = options_of(tmp_path, chunkBytes=size)
        ((split,),) = plan(options)
        found = list(chunks(split, options))
        offsets = [offset for chunk in found for offset in chunk.headers.base_offset.tolist()]
        positions = [chunk.origin + start for chunk in found for start in chunk.headers.start.tolist()]
        assert offsets == list(range(40))
        assert positions == sorted(set(positions))


def test_records_that_add_up_vouch_for_a_length() -> None:
    batch = values_batch([b"abc", b"def"])
    data = bytes(batch.data)
    headers = walk(data).headers
    assert length_adds_up(data, headers, 0)
    assert end_of_records(data, 61, len(data), 2) == len(data)
    assert end_of_records(data, 61, len(data) - 1, 2) is None
    assert end_of_records(b"\xff\xff\xff\xff\xff\xff", 0, 6, 1) is None
    packed = bytes(values_batch([b"abc"], codec=Codec.LZ4).data)
    assert not length_adds_up(packed, walk(packed).headers, 0)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_beginning_of_a_batch_is_told_from_a_whole_one_with_a_wrong_length(codec: Codec) -> None:
    data = bytearray(values_batch([b"abc", b"def"], base_offset=7, codec=codec).data)
    for size in range(len(data)):
        assert is_beginning_of_batch(bytes(data[:size]), {7})
    assert not is_beginning_of_batch(bytes(data), {7}), "it is whole"
    assert not is_beginning_of_batch(bytes(data[:-1]), {8}) or len(data) <= 61
    data[10] = 1
    assert is_beginning_of_batch(bytes(data), {7}) == (codec is not Codec.NONE), "only plain records show their end"
    data[16] = 1
    assert not is_beginning_of_batch(bytes(data), {7})


def test_an_unknown_codec_is_damage(tmp_path: Path) -> None:
    from kraftlib.records.checksum import crc32c

    data = bytearray(values_batch([b"abc"]).data)
    data[22] |= 6
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4)
    (tmp_path / "00000000000000000000.log").write_bytes(data)
    options = options_of(tmp_path)
    with pytest.raises(CorruptBatchError, match="names codec 6, and there is no such codec"):
        list(chunks(plan(options)[0][0], options))
