"""A file knows its name, its directory, and whether it may grow."""

from __future__ import annotations

from kraftlib.analysis.log_files import Kind, Labels, LogFile


def test_only_the_newest_segment_may_grow() -> None:
    def file(kind: Kind, next_offset: int | None) -> LogFile:
        return LogFile(
            root="", path="/a/b/c", kind=kind, offset=0, epoch=None, size=1, labels=Labels(), next_offset=next_offset
        )

    newest = file(Kind.LOG, None)
    assert (newest.name, newest.directory, newest.is_last) == ("c", "/a/b", True)
    assert not file(Kind.LOG, 7).is_last
    assert not file(Kind.SNAPSHOT, None).is_last
