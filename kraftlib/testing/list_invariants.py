"""The invariants of static voter lists that were edited (I16): see `invariants`."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kraftlib.testing.images import DiskImage
from kraftlib.testing.violation import Complaint
from kraftlib.types import ReplicaId


def i16_another_list_is_refused(node: DiskImage, ids: Sequence[ReplicaId], before: Sequence[ReplicaId]) -> Complaint:
    """I16: a replica that was in an epoch under one list of static voters does not start under another one."""
    if list(ids) == list(before):
        return None
    return f"{node.key} has run with the voters {list(before)}, and starts with {list(ids)}"


def i16_only_another_list_is_refused(
    node: DiskImage, ids: Sequence[ReplicaId], before: Sequence[ReplicaId], refusal: str
) -> Complaint:
    """I16: nothing else keeps a replica from its start, and the refusal says both lists and the safe way."""
    if list(ids) == list(before) or not ids:
        return f"{node.key} does not start, and its list of voters was not edited: {refusal}"
    both = [f"{{{', '.join(map(str, listed))}}}" for listed in (ids, before)]
    missing = [text for text in (*both, "kraftlib quorum upgrade", "kraftlib recover") if text not in refusal]
    return f"{node.key} does not start, and is not told of {missing}: {refusal}" if missing else None


def i16_lists_do_not_mix(node: DiskImage, ids: Sequence[ReplicaId], said: bytes | None, what: str) -> Complaint:
    """I16: a replica that says it counts other static voters gets no vote and no records.

    `said` is what the request says; None if it says nothing, and empty if the voters of its sender stand in its log.
    """
    theirs = list(struct.unpack(f">{len(said) // 4}i", said)) if said else []
    if not ids or not theirs or theirs == list(ids):
        return None
    return f"{node.key} counts the voters {list(ids)}, and grants a {what} of a replica that counts {theirs}"
