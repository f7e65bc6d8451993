"""One split, chunk by chunk: whole batches whose CRC and place in the chain are checked, and the faults of the others.

A CRC covers what stands behind it, so base offset, length and epoch can only be judged by their neighbours:

* a batch begins at the offset where the one before it ends, and the last one where the next split begins;
* epochs never fall; of two batches between which one falls, either may be wrong, so both are reported;
* a length is believed if the CRC fits, or if the records inside add up to it. Otherwise the way is lost, and found
  again only at a batch that the index names, or at the end of the split; the bytes between are one gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs
import numpy as np

from kraftlib.analysis.headers import BATCH_MAX_BYTES, Headers, Stop, Walk, actual_crc, headers_at, impossible, walk
from kraftlib.analysis.log_files import Kind
from kraftlib.analysis.marks import IndexMarks
from kraftlib.analysis.options import ReadOptions
from kraftlib.analysis.ranged_files import RangedFile
from kraftlib.analysis.splits import Split
from kraftlib.analysis.varints import Array
from kraftlib.analysis.way_on import MAGIC_AT, WayOn, end_of_records
from kraftlib.errors import ConfigError, CorruptBatchError, KraftError
from kraftlib.records.batch import HEADER_SIZE, MAGIC, read_batch
from kraftlib.records.compression import Codec
from kraftlib.records.control import ControlType, control_key

CODECS_MAX: Final = max(Codec)
_PIECE: Final = 1 << 20


@attrs.frozen(kw_only=True)
class Gap:
    """A range of bytes of a file that holds no readable batch, or a place where offsets are missing (no bytes)."""

    start: int
    end: int
    reason: str
    offset: int | None
    """The expected beginning of the chunk, as far as it is known."""


@attrs.frozen(kw_only=True, eq=False)
class Chunk:
    """Whole batches, and their faults."""

    data: Any
    """Bytes; a view of them, if their memory is used again."""
    origin: int
    """Where `data` begins in the file."""
    headers: Headers
    crc_ok: Array
    chain_ok: Array
    problems: dict[int, str]
    """Index of a batch -> why it is not to be believed."""
    gap: Gap | None = None
    """The bytes after the last whole batch."""


def chunks(split: Split, options: ReadOptions, *, reuse: bool = False) -> Iterator[Chunk]:
    """Yield the batches of a split in chunks. Raises: CorruptBatchError for the first damage, with mode FAILFAST.

    With `reuse`, the `data` of a chunk is gone when the next one is asked for.
    """
    buffer = bytearray(min(options.chunk_bytes, split.end - split.start)) if reuse else None
    with RangedFile(split.file, buffer=buffer) as stream:
        yield from _Chunks(split, options, stream).all()


class _Chunks:
    """The way through one split: where it is, and what must come next."""

    def __init__(self, split: Split, options: ReadOptions, stream: RangedFile) -> None:
        self.split = split
        self.file = split.file
        self.options = options
        self.stream = stream
        self.position = split.start
        # Usually one offset. After a batch with a wrong one there are two: where it ends, and where it should have.
        self.next_offsets: set[int] = set() if split.start_offset is None else {split.start_offset}
        self.epoch = split.start_epoch
        self.ended_in_footer = False
        self.way_on = WayOn(stream, split.end)

    def all(self) -> Iterator[Chunk]:
        while self.position < self.split.end:
            data, found = self.read()
            chunk = self.examine(data, found)
            if self.options.mode == "FAILFAST":
                self.fail_on_damage(chunk)
            yield chunk
        gap = self.end()
        if gap is not None:
            yield self.empty(gap)

    # Reading

    def read(self) -> tuple[bytes | memoryview, Walk]:
        """Read the next chunk; one that is smaller than its first batch grows to hold that."""
        left = self.split.end - self.position
        with_crcs = self.options.verify_crc
        data = self.read_exactly(min(self.options.chunk_bytes, left))
        found = walk(data, with_crcs=with_crcs)
        if not len(found.headers) and found.stop is Stop.CUT:
            if not found.wanted and left >= HEADER_SIZE:
                data = self.read_exactly(HEADER_SIZE)
                found = walk(data, with_crcs=with_crcs)
            if len(data) < found.wanted <= left:
                data = self.read_exactly(found.wanted)
                found = walk(data, with_crcs=with_crcs)
        return data, found

    def read_exactly(self, size: int) -> bytes | memoryview:
        data = self.stream.read_chunk(self.position, size)
        if len(data) != size:
            raise self.error(self.position + len(data), "the file ends: it became shorter while it was read")
        return data

    def peek(self, position: int) -> Headers | None:
        """Return the header of the batch at `position`, which is within the split, None if it is not whole."""
        if position + HEADER_SIZE > self.split.end:
            return None
        data = self.stream.read_at(position, HEADER_SIZE)
        is_batch = len(data) == HEADER_SIZE and data[MAGIC_AT] == MAGIC
        return headers_at(data, np.zeros(1, dtype=np.int64)) if is_batch else None

    # Judging

    def examine(self, data: bytes | memoryview, found: Walk) -> Chunk:
        """Check the batches of a chunk and move on behind them, or behind what cannot be read."""
        headers = found.headers
        crc_ok = found.crcs == headers.crc if self.options.verify_crc else np.ones(len(headers), dtype=bool)
        lost_at, reason = found.end, self.why_stopped(found)
        for index in np.flatnonzero(~crc_ok).tolist():
            if not length_adds_up(data, headers, index) and not self.leads_on(headers, index):
                lost_at, reason = int(headers.start[index]), crc_reason(data, headers, index)
                headers, crc_ok = headers.select(slice(0, index)), crc_ok[:index]
                break
        following = self.peek(self.position + lost_at) if not reason else None
        chain_ok, problems = self.judge(headers, following)
        for index in np.flatnonzero(~crc_ok).tolist():
            problems[index] = crc_reason(data, headers, index)
        self.look_for_footer(data, headers, crc_ok)
        origin = self.position
        self.position += lost_at
        gap = self.find_the_way(reason) if reason else None
        return Chunk(data=data, origin=origin, headers=headers, crc_ok=crc_ok, chain_ok=chain_ok, problems=problems,
                     gap=gap)  # fmt: skip

    def leads_on(self, headers: Headers, index: int) -> bool:
        """Whether the length of a batch whose CRC does not fit leads to the next one."""
        before = {int(headers.last_offset[index - 1]) + 1} if index else self.next_offsets
        position = self.position + int(headers.start[index])
        return self.way_on.end_of_batch(position, before, own_length=True) is not None

    def why_stopped(self, found: Walk) -> str:
        """Return why nothing can be read behind a walk; empty, if it only needs the next chunk, or all is read."""
        left = self.split.end - self.position - found.end
        if found.stop is Stop.BROKEN:
            return found.reason
        if found.stop is Stop.END or (found.wanted or HEADER_SIZE) <= left:
            return ""
        if not self.split.is_end_of_file:
            return f"ends beyond byte {self.split.end}, where the index says that another one begins"
        claim = f"claims {found.wanted}" if found.wanted else f"needs at least {HEADER_SIZE}"
        return f"is cut short: it {claim} bytes, {left} are there"

    def judge(self, headers: Headers, following: Headers | None) -> tuple[Array, dict[int, str]]:
        """Check offsets and epochs against the neighbours."""
        count = len(headers)
        problems: dict[int, str] = {}
        chain_ok = np.ones(count, dtype=bool)
        if not count:
            return chain_ok, problems
        for index in np.flatnonzero(impossible(headers)).tolist():
            problems[index] = "has a base offset, last offset and record count that do not fit each other"
        if self.options.contiguous:
            judge_whole(headers, problems)
        self.judge_offsets(headers, problems)
        self.judge_epochs(headers, following, problems)
        for index in np.flatnonzero(headers.codec > CODECS_MAX).tolist():
            problems.setdefault(index, f"names codec {headers.codec[index]}, and there is no such codec")
        chain_ok[list(problems)] = False
        return chain_ok, problems

    def judge_offsets(self, headers: Headers, problems: dict[int, str]) -> None:
        ends = headers.last_offset + 1
        in_order = headers.base_offset[1:] == ends[:-1]
        first = int(headers.base_offset[0])
        if in_order.all() and not problems and (not self.next_offsets or first in self.next_offsets):
            self.next_offsets = {int(ends[-1])}
            return
        for index, (base, end) in enumerate(zip(headers.base_offset.tolist(), ends.tolist(), strict=True)):
            expected = self.next_offsets
            fits = not expected or base in expected or (not self.options.contiguous and base > min(expected))
            if not fits:
                problems.setdefault(index, f"has base offset {base}, and {_or(expected)} was to follow")
            self.next_offsets = {end} if fits else {end, *(offset + end - base for offset in expected)}

    def judge_epochs(self, headers: Headers, following: Headers | None, problems: dict[int, str]) -> None:
        before = -1 if self.epoch is None else self.epoch
        after = self.split.end_epoch if following is None else int(following.epoch[0])
        epochs = np.concatenate(([before], headers.epoch, [2**31 if after is None else after]))
        for index in np.flatnonzero(epochs[1:] < epochs[:-1]).tolist():
            reason = f"epoch {epochs[index]} is followed by {epochs[index + 1]}, and epochs never fall: one is wrong"
            for wrong in (index - 1, index):
                if 0 <= wrong < len(headers):
                    problems.setdefault(wrong, reason)
        if self.file.epoch is not None and self.file.kind is not Kind.BOOTSTRAP:
            for index in np.flatnonzero(headers.epoch != self.file.epoch).tolist():
                problems.setdefault(index, f"has epoch {headers.epoch[index]} in a snapshot of epoch {self.file.epoch}")
        self.epoch = int(headers.epoch[-1])

    # Snapshots

    def look_for_footer(self, data: bytes | memoryview, headers: Headers, crc_ok: Array) -> None:
        """Take note of header and footer of a snapshot. Raises: CorruptBatchError, in every mode, if it has no header.

        Name and size prove nothing: without both it is no snapshot but the remains of one.
        """
        if self.file.kind is Kind.LOG or not len(headers):
            return
        controls = np.flatnonzero(headers.is_control & crc_ok).tolist()
        types = {index: _types(data, headers, index) for index in controls}
        if self.position == 0 and ControlType.SNAPSHOT_HEADER not in types.get(0, ()):
            raise self.error(0, "it does not begin with a snapshot header: this is no snapshot")
        last = len(headers) - 1
        footers = [index for index in controls if ControlType.SNAPSHOT_FOOTER in types[index]]
        if self.ended_in_footer or [index for index in footers if index != last]:
            raise self.error(self.position, "it goes on behind its footer")
        self.ended_in_footer = bool(footers)

    # Damage

    def find_the_way(self, reason: str) -> Gap | None:
        """Move to the next readable position, and return the range between."""
        start, offset = self.position, min(self.next_offsets, default=None)
        proven = self.way_on.end_of_batch(start, self.next_offsets, own_length=False)
        if proven is None and self.may_be_unfinished(start):
            self.position = self.split.end
            return None
        self.position, next_offset = (proven, None) if proven is not None else self.next_known(start)
        if self.position >= self.split.end:
            next_offset = self.split.end_offset
        elif next_offset is None and (following := self.peek(self.position)) is not None:
            next_offset = int(following.base_offset[0])
        self.next_offsets = set() if next_offset is None else {next_offset}
        self.epoch = None
        reason = f"the batch at byte {start} {reason}; {self.position - start} bytes are not read"
        return Gap(start=start, end=self.position, reason=reason, offset=offset)

    def next_known(self, position: int) -> tuple[int, int | None]:
        """Return the next batch behind `position` of which the index knows, or the end of the split; and its offset."""
        index = IndexMarks.of(self.file) if self.file.kind is Kind.LOG else None
        seam = index.next_behind(position) if index is not None else None
        return (self.split.end, None) if seam is None or seam[0] >= self.split.end else (seam[0], seam[1])

    def may_be_unfinished(self, position: int) -> bool:
        """Whether the last batch of a log is cut short because it is being written, and not because of damage."""
        if not (self.file.is_last and self.split.is_end_of_file and self.options.tail == "ignore"):
            return False
        if self.is_zero_behind(position):
            return True
        left = self.split.end - position
        if left > BATCH_MAX_BYTES or not is_beginning_of_batch(self.stream.read_at(position, left), self.next_offsets):
            return False
        index = IndexMarks.of(self.file)
        return index is None or index.next_behind(position) is None

    def is_zero_behind(self, position: int) -> bool:
        """Whether nothing was written behind `position` into space that had been reserved."""
        while position < self.split.end:
            data = self.stream.read_at(position, min(_PIECE, self.split.end - position))
            if not data or any(data):
                return False
            position += len(data)
        return True

    def end(self) -> Gap | None:
        """Check what must hold at the end of a split; return a gap, if offsets are missing."""
        split = self.split
        if self.file.kind is not Kind.LOG and split.is_end_of_file and not self.ended_in_footer:
            raise self.error(split.end, "it has no footer: this is no whole snapshot")
        expected = split.end_offset
        self.refuse_bounds_beyond_the_end()
        if expected is None or not self.next_offsets or expected in self.next_offsets:
            return None
        if not self.options.contiguous and expected > min(self.next_offsets):
            return None
        reason = (
            f"the offsets from {_or(self.next_offsets)} on are missing, {expected} follows at byte {split.end}"
            if expected > min(self.next_offsets)
            else f"offset {_or(self.next_offsets)} was to follow, and {expected} does at byte {split.end}"
        )
        gap = Gap(start=split.end, end=split.end, reason=reason, offset=min(self.next_offsets))
        if self.options.mode == "FAILFAST":
            raise self.error(split.end, reason)
        return gap

    def refuse_bounds_beyond_the_end(self) -> None:
        """Refuse offsets that were asked for by number, and that the log does not have yet."""
        if self.options.mode != "FAILFAST" or not (self.file.is_last and self.split.is_end_of_file):
            return
        for name, asked in (
            ("startOffset", self.options.bounds.offset.start),
            ("endOffset", self.options.bounds.offset.end),
        ):
            if asked is not None and self.next_offsets and asked > min(self.next_offsets):
                raise ConfigError(
                    f"offset {asked} ({name}) is beyond the end of the log, which is {min(self.next_offsets)} in"
                    f" {self.file.path}; leave it out to read what there is"
                )

    def empty(self, gap: Gap) -> Chunk:
        none = np.empty(0, dtype=bool)
        headers = headers_at(b"", np.empty(0, dtype=np.int64))
        return Chunk(data=b"", origin=gap.start, headers=headers, crc_ok=none, chain_ok=none, problems={}, gap=gap)

    def fail_on_damage(self, chunk: Chunk) -> None:
        """Raise the first damage of a chunk, with file, position and offset."""
        if chunk.problems:
            index = min(chunk.problems)
            headers = chunk.headers
            position, offset = chunk.origin + int(headers.start[index]), int(headers.base_offset[index])
            raise self.error(position, f"the batch of offset {offset} {chunk.problems[index]}")
        if chunk.gap is not None:
            raise self.error(chunk.gap.start, chunk.gap.reason)

    def error(self, position: int, reason: str) -> CorruptBatchError:
        return CorruptBatchError(f"{self.file.path}, byte {position}: {reason}", path=self.file.path, position=position)


def judge_whole(headers: Headers, problems: dict[int, str]) -> None:
    """Check what holds where no record was ever taken out: each offset has its record, and each batch had a leader."""
    offsets = headers.last_offset - headers.base_offset + 1
    for index in np.flatnonzero(headers.count != offsets).tolist():
        problems.setdefault(index, f"holds {headers.count[index]} records for {offsets[index]} offsets")
    for index in np.flatnonzero(headers.epoch < 0).tolist():
        problems.setdefault(index, f"has epoch {headers.epoch[index]}, and no leader has such a one")


def _or(offsets: set[int]) -> str:
    return " or ".join(map(str, sorted(offsets)))


def crc_reason(data: bytes | memoryview, headers: Headers, index: int) -> str:
    """Return why the CRC of a batch does not fit."""
    return f"has CRC {actual_crc(data, headers, index):#010x} and claims {int(headers.crc[index]):#010x}"


def length_adds_up(data: bytes | memoryview, headers: Headers, index: int) -> bool:
    """Whether the records of an uncompressed batch, whose CRC does not fit, end where the batch says that it ends."""
    if headers.codec[index] or not headers.count[index]:
        return False
    start, end = int(headers.start[index]) + HEADER_SIZE, int(headers.end[index])
    return end_of_records(data, start, end, int(headers.count[index])) == end


def is_beginning_of_batch(data: bytes, next_offsets: set[int]) -> bool:
    """Whether `data`, the end of a log, can be a batch of which the rest is not written, and no whole one with a wrong
    length: the records of a whole one add up."""
    if len(data) < HEADER_SIZE:
        return True
    header = headers_at(data, np.zeros(1, dtype=np.int64))
    if data[MAGIC_AT] != MAGIC or (next_offsets and int(header.base_offset[0]) not in next_offsets):
        return False
    if header.size[0] <= len(data):
        return False
    count = int(header.count[0])
    return bool(header.codec[0]) or count <= 0 or end_of_records(data, HEADER_SIZE, len(data), count) is None


def _types(data: bytes | memoryview, headers: Headers, index: int) -> set[int]:
    """Return the types of the records of a control batch; none of one that cannot be read."""
    try:
        batch = read_batch(memoryview(data)[int(headers.start[index]) : int(headers.end[index])])
        return {control_key(record).type for record in batch.records()}
    except KraftError:
        return set()
