"""The invariants of edited lists of static voters: each says no to what it is for, and to nothing else."""

from __future__ import annotations

import struct
import uuid

from kraftlib.testing.facts import Chain
from kraftlib.testing.images import LostDisk
from kraftlib.testing.list_invariants import (
    i16_another_list_is_refused,
    i16_lists_do_not_mix,
    i16_only_another_list_is_refused,
)
from kraftlib.types import ReplicaKey

NODE = LostDisk(ReplicaKey(1, uuid.UUID(int=1)), Chain(), 0)
GOOD = "voters {1, 2, 4} ... {1, 2, 3} ... `kraftlib quorum upgrade` ... `kraftlib recover`"


def test_who_has_run_with_one_list_does_not_start_with_another() -> None:
    assert i16_another_list_is_refused(NODE, [1, 2, 3], [1, 2, 3]) is None
    assert "starts with [1, 2, 4]" in (i16_another_list_is_refused(NODE, [1, 2, 4], [1, 2, 3]) or "")


def test_a_refusal_needs_an_edited_list_and_says_both_and_the_safe_way() -> None:
    assert i16_only_another_list_is_refused(NODE, [1, 2, 4], [1, 2, 3], GOOD) is None
    assert "not edited" in (i16_only_another_list_is_refused(NODE, [1, 2, 3], [1, 2, 3], GOOD) or "")
    assert "not edited" in (i16_only_another_list_is_refused(NODE, [], [1, 2, 3], GOOD) or "")
    for missing in ("{1, 2, 4}", "{1, 2, 3}", "kraftlib quorum upgrade", "kraftlib recover"):
        refusal = GOOD.replace(missing, "")
        assert missing in (i16_only_another_list_is_refused(NODE, [1, 2, 4], [1, 2, 3], refusal) or "")


def test_nothing_is_granted_across_lists() -> None:
    ours, theirs = struct.pack(">3i", 1, 2, 3), struct.pack(">2i", 1, 2)
    for said in (None, b"", ours):
        assert i16_lists_do_not_mix(NODE, [1, 2, 3], said, "VoteRequest") is None
    assert i16_lists_do_not_mix(NODE, [], theirs, "VoteRequest") is None
    assert "counts [1, 2]" in (i16_lists_do_not_mix(NODE, [1, 2, 3], theirs, "VoteRequest") or "")
