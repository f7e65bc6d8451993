"""`spark.readStream.format("kraft")`: the committed records of a log as they come, each of them once.

The stream follows an archive: its files hold committed records only, durably, and nothing in them is ever taken back.
With the option `bootstrap` the query keeps that archive itself: it follows a live quorum, and fetched records are on
the disk before Spark hears of them. So a batch that is planned again after a crash is read from the very same bytes,
whatever the quorum has compacted meanwhile.

The offset of the stream is a place in the log: an offset, and the epoch of the record before it. Byte positions are no
part of it. A place that the log does not have is an error: left to itself Spark would take an end before its start for
an empty batch, and rewind.

Spark keeps one such reader alive per query, so that it can remember where it was; its lost memory costs time only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import attrs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kraftlib.analysis.checkpoint import local_path
from kraftlib.analysis.files import find_files
from kraftlib.analysis.options import to_millis
from kraftlib.analysis.reading import read_splits, read_table, schema_for
from kraftlib.analysis.splits import Split
from kraftlib.analysis.tail import BehindError, Limits, LogTail, Piece, parse_place, place_text
from kraftlib.archive.directory import MARKER, find_archives
from kraftlib.errors import ConfigError, KraftError, NotFormattedError
from kraftlib.spark.live import LiveArchive
from kraftlib.spark.sessions import prepare_worker
from kraftlib.spark.stream_options import EARLIEST, LATEST, StreamOptions, parse_stream_options
from kraftlib.types import OffsetAndEpoch

POLL_S: Final = 0.01
LONG_POLL_S: Final = 0.5


class PiecePartition(InputPartition):
    """The work of one task."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says how far there is something to read, plans batches and reads them."""

    def __init__(self, options: StreamOptions) -> None:
        self.stream_options = options
        self._tail: LogTail | None = None
        self._live: LiveArchive | None = None
        self._target: OffsetAndEpoch | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Readers are pickled into workers; the follower of the log stays here.
        return {"stream_options": self.stream_options, "_tail": None, "_live": None, "_target": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's names, here and below)
        """Return where a query without a checkpoint begins: at the beginning, unless startingOffsets says otherwise."""
        start, first = self.stream_options.start, OffsetAndEpoch(offset=0, epoch=0)
        if start in (EARLIEST, 0):
            return place_text(first)
        live = self._followed_live()
        if live is not None:
            live.wait_caught_up(self.stream_options.patience_s)
        if start == LATEST:
            return place_text(self._patiently(lambda: self._followed().end()))
        if isinstance(start, datetime):
            return place_text(
                self._patiently(lambda: place_of(self._followed(), directory_of(self.stream_options), start))
            )
        return place_text(self._patiently(lambda: place_at(self._followed(), int(start))))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return what a batch may hold at most."""
        options = self.stream_options
        return ReadMaxRows(options.max_records) if options.max_records is not None else ReadMaxBytes(options.max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; wait a little for one, since Spark would ask again at once."""
        place, limits = parse_place(start), self._limits(limit)
        until = time.monotonic() + LONG_POLL_S
        while True:
            end = self._patiently(lambda: self._advance(place, limits))
            if end != place or self._target is not None or time.monotonic() >= until:
                return place_text(end)
            time.sleep(POLL_S)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return how far the log reaches now, for the progress of the query; None, if it is unknown.

        Beyond the place there may be `high_watermark`: the committed end of a live quorum, which the archive may not
        have reached yet. Of a log that cannot be read the next batch tells: a report is no reason to fail.
        """
        try:
            told = place_text(self._followed().end())
        except KraftError:
            return None
        committed = self._live.high_watermark() if self._live is not None else None
        return told if committed is None else {**told, "high_watermark": committed}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where the log ends now: the query goes as far, and no further."""
        live = self._followed_live()
        if live is not None:
            live.wait_caught_up(self.stream_options.patience_s)
        self._target = self._patiently(lambda: self._followed().end())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[PiecePartition]:
        """Return the work of a batch. The same for the same places, whenever it is asked."""
        first, last = parse_place(start), parse_place(end)
        pieces = self._patiently(lambda: self._followed().pieces(first, last))
        return [PiecePartition(piece) for piece in pieces]

    def read(self, partition: PiecePartition | None) -> Iterator[Any]:
        """Yield the rows of one task as Arrow batches."""
        prepare_worker()
        if partition is not None:
            options = self.stream_options.reading
            yield from read_splits([split_of(partition.piece)], options, schema_for(options))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: an archive is kept."""

    def stop(self) -> None:
        """Stop to follow the quorum."""
        if self._live is not None:
            self._live.stop()

    # Progress --------------------------------------------------------------------------------------------

    def _limits(self, limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadAllAvailable):
            return Limits()
        return Limits(records=self.stream_options.max_records, bytes=self.stream_options.max_bytes)

    def _advance(self, place: OffsetAndEpoch, limits: Limits) -> OffsetAndEpoch:
        # A place beyond the target is looked up all the same: is it the log that was read before?
        end = None if self._target is None else max(self._target.offset, place.offset)
        return self._followed().advance(place, limits, end=end)

    def _patiently(self, work: Callable[[], Any]) -> Any:
        """Do some work; a log that is behind for now may come up to the former end, after a crash for instance."""
        until = time.monotonic() + self.stream_options.patience_s
        while True:
            live = self._followed_live()
            try:
                if live is not None:
                    live.check(self.stream_options.patience_s)
                return work()
            except (BehindError, NotFormattedError):
                if time.monotonic() >= until:
                    raise
                time.sleep(POLL_S)

    # The followed log ------------------------------------------------------------------------------------

    def _followed_live(self) -> LiveArchive | None:
        options = self.stream_options
        if options.servers and self._live is None:
            self._live = LiveArchive(local_path(options.reading.path), options.servers, cluster_id=options.cluster_id)
            self._live.start()
        return self._live

    def _followed(self) -> LogTail:
        if self._tail is None:
            directory = directory_of(self.stream_options)
            self._tail = LogTail(directory, snapshots=self.stream_options.snapshots)
        return self._tail


def place_at(tail: LogTail, offset: int) -> OffsetAndEpoch:
    """Return the place of an offset at which a batch begins. Raises: ConfigError for any other."""
    place = tail.before(offset)
    while (further := tail.advance(place, end=offset)) != place:
        place = further
    if place.offset != offset:
        raise ConfigError(
            f"startingOffsets={offset} is no offset at which a batch begins: the log has one at {place.offset}; begin"
            " there, and leave out the rows before it with a filter"
        )
    return place


def place_of(tail: LogTail, directory: Path, moment: datetime) -> OffsetAndEpoch:
    """Return the place of the first batch that has a record as late as `moment`; the end of the log, if none has."""
    asked = {"view": "batches", "columns": "base_offset", "startTimestamp": to_millis(moment)}
    offsets = read_table(directory, **asked)["base_offset"].to_pylist()
    return place_at(tail, min(offsets)) if offsets else tail.end()


def directory_of(options: StreamOptions) -> Path:
    """Return the directory of the one log that is followed. Raises: ConfigError, NotFormattedError."""
    root = local_path(options.reading.path)
    archives = find_archives(root) if root.is_dir() else []
    if not archives and options.servers:
        raise NotFormattedError(f"{root} holds no archive yet", path=root)
    if len(archives) > 1:
        names = ", ".join(str(archive.path) for archive in archives)
        raise ConfigError(f"a stream follows one log, and {root} holds {len(archives)}: name one of {names}")
    if archives:
        return archives[0].partition
    return _own_or_refused(root, options)


def _own_or_refused(root: Path, options: StreamOptions) -> Path:
    directories = {file.directory for file in find_files(root)}
    if len(directories) != 1:
        raise ConfigError(f"a stream follows one log, and {root} holds {len(directories)}: {sorted(directories)}")
    directory = Path(directories.pop())
    if (directory.parent / MARKER).exists() or options.uncommitted:
        return directory
    raise ConfigError(
        f"{directory} is no archive: records there may not be committed, and vanish again when a leader changes. Follow"
        " its quorum with `kraftlib archive follow` and read that, or say visibility=uncommitted"
    )


def split_of(piece: Piece) -> Split:
    """Return a piece as a split, as the readers of tables read it."""
    (file,) = find_files(piece.path)
    file = attrs.evolve(file, size=piece.end)
    if piece.is_checkpoint:
        return Split(file=file, start=0, end=piece.end, start_offset=0)
    epoch = piece.epoch if piece.start > 0 else None
    return Split(file=file, start=piece.start, end=piece.end, start_offset=piece.start_offset, start_epoch=epoch)


def stream_reader(options: Mapping[str, str], schema: Any) -> StreamReader:
    """Return the reader of a stream; `schema` may hold fewer columns than were offered."""
    return StreamReader(parse_stream_options(options, tuple(schema.names)))
