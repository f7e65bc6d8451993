"""The enumerator of crash states: what it must find for a few operations that can be thought through by hand."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tools.storage_proof.crash_states import CrashStates
from tools.storage_proof.file_trace import (
    Create,
    Image,
    Mark,
    Operation,
    Remove,
    Rename,
    Resize,
    StoredFile,
    Sync,
    SyncDirectory,
    Write,
)

EMPTY = Image(files={})


def contents(operations: Sequence[Operation], initial: Image = EMPTY, *, marked: object = None) -> set[tuple]:
    """Return what may be found, as sets of (name, bytes); only where this mark was passed, if one is named."""
    return {
        tuple(sorted((path, stored.data) for path, stored in state.image.files.items()))
        for state in CrashStates(operations, initial, most=10_000)
        if marked is None or marked in state.marks
    }


def test_a_file_that_was_never_synced_may_be_there_or_not_and_be_empty_or_full_or_zeros() -> None:
    found = contents([Create(1, "a"), Write(1, 0, b"xy")])

    assert {(), (("a", b""),), (("a", b"xy"),), (("a", b"\0\0"),)} <= found


def test_bytes_and_name_are_made_durable_apart() -> None:
    synced = [Create(1, "a"), Write(1, 0, b"xy"), Sync(1)]

    assert contents([*synced, Mark("told")], marked="told") == {(), (("a", b"xy"),)}
    assert contents([*synced, SyncDirectory("."), Mark("told")], marked="told") == {(("a", b"xy"),)}


def test_a_directory_sync_does_not_make_bytes_durable() -> None:
    found = contents([Create(1, "a"), Write(1, 0, b"xy"), SyncDirectory("."), Mark("told")], marked="told")

    assert (("a", b""),) in found
    assert () not in found


def test_a_rename_shows_the_old_file_or_the_new_one_but_never_none() -> None:
    initial = Image(files={"name": StoredFile(1, b"old")})
    operations = [Create(2, "tmp"), Write(2, 0, b"new"), Sync(2), Rename(2, "tmp", "name")]

    found = contents(operations, initial)

    assert {dict(files)["name"] for files in found} == {b"old", b"new"}


def test_a_rename_before_the_sync_may_show_an_empty_file() -> None:
    initial = Image(files={"name": StoredFile(1, b"old")})
    operations = [Create(2, "tmp"), Write(2, 0, b"new"), Rename(2, "tmp", "name"), Sync(2)]

    assert (("name", b""),) in contents(operations, initial)


def test_removals_come_in_any_order() -> None:
    initial = Image(files={"1": StoredFile(1, b""), "2": StoredFile(2, b"")})

    found = contents([Remove("2"), Remove("1")], initial)

    assert found == {(("1", b""), ("2", b"")), (("1", b""),), (("2", b""),), ()}


def test_a_long_write_is_torn_at_sectors() -> None:
    data = bytes([1]) * 512 + bytes([2]) * 512
    initial = Image(files={"a": StoredFile(1, b"")})

    found = {dict(files)["a"] for files in contents([Write(1, 0, data)], initial)}

    assert {b"", data, data[:512], bytes(512) + data[512:], data[:512] + bytes(512), bytes(1_024)} <= found
    assert b"\x01" * 100 not in found


def test_a_write_whose_sync_failed_may_be_lost_for_ever() -> None:
    initial = Image(files={"a": StoredFile(1, b"")})
    operations = [Write(1, 0, b"x"), Sync(1, worked=False), Sync(1), Mark("told")]

    assert {(("a", b""),), (("a", b"x"),)} <= contents(operations, initial, marked="told")


def test_what_is_written_again_after_a_failed_sync_is_durable() -> None:
    initial = Image(files={"a": StoredFile(1, b"")})
    operations = [Write(1, 0, b"xyz"), Sync(1, worked=False), Resize(1, 0), Write(1, 0, b"xyz"), Sync(1), Mark("told")]

    assert contents(operations, initial, marked="told") == {(("a", b"xyz"),)}


def test_what_was_cut_off_may_come_back_if_the_cut_was_not_synced_whatever_is_synced_later() -> None:
    initial = Image(files={"a": StoredFile(1, b"old one")})
    operations = [Resize(1, 3), Sync(1, worked=False), Sync(1), Mark("told")]

    assert contents(operations, initial, marked="told") == {(("a", b"old one"),), (("a", b"old"),)}


def test_a_file_that_has_grown_durably_since_it_was_cut_is_as_long_as_it_grew() -> None:
    """Its size is one number. The cut neither comes after that nor brings back what stands behind."""
    initial = Image(files={"a": StoredFile(1, b"old one")})
    operations = [Resize(1, 3), Sync(1, worked=False), Write(1, 3, b"er"), Sync(1), Mark("told")]

    assert contents(operations, initial, marked="told") == {(("a", b"older"),)}


def test_a_gap_behind_a_cut_that_was_not_synced_has_zeros_or_what_stood_there() -> None:
    initial = Image(files={"a": StoredFile(1, b"old one")})
    operations = [Resize(1, 1), Sync(1, worked=False), Write(1, 3, b"er"), Sync(1), Mark("told")]

    assert contents(operations, initial, marked="told") == {(("a", b"older"),), (("a", b"o\0\0er"),)}


@given(st.lists(st.tuples(st.integers(0, 6), st.binary(min_size=1, max_size=4)), max_size=4), st.integers(0, 4))
def test_synced_writes_are_there_and_all_that_was_done_is_one_of_the_states(
    writes: list[tuple[int, bytes]], synced: int
) -> None:
    """The slow twin: a bytearray that is written to."""
    synced = min(synced, len(writes))
    operations: list[Operation] = [Write(1, position, data) for position, data in writes]
    operations.insert(synced, Sync(1))
    kept, full = bytearray(), bytearray()
    for number, (position, data) in enumerate(writes):
        for file in (kept, full) if number < synced else (full,):
            file.extend(bytes(max(0, position - len(file))))
            file[position : position + len(data)] = data

    found = {
        state.image.files["a"].data
        for state in CrashStates([*operations, Mark("end")], Image(files={"a": StoredFile(1, b"")}), most=10_000)
        if state.marks
    }

    assert {bytes(kept), bytes(full)} <= found
    if synced == len(writes):
        assert found == {bytes(full)}
