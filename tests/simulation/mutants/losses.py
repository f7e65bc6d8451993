"""Bugs in a replica that has lost its votes or some of its records."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        "repair-ends-with-the-first-hole",
        "a replica that has lost records in several places takes its log for whole once the first of them are back",
        (Edit("consensus.repair.handle_repaired", "event.holes, event.end_offset", "(), event.end_offset"),),
        profiles=("disks",),
    ),
    Mutant(
        "amnesiac-votes",
        "whoever has lost its election file votes as if it had never voted (E3)",
        (
            Edit("consensus.vote.grants_vote", "state.amnesia is not None or ", ""),
            Edit("consensus.vote.grants_pre_vote", "state.amnesia is not None or ", ""),
        ),
        profiles=("disks",),
    ),
    Mutant(
        "amnesia-ends-with-a-majority",
        "whoever has lost its election file votes again once some have told their epoch (E3)",
        (Edit("consensus.repair.maybe_recall", " or unreported(state)", ""),),
        profiles=("disks",),
        slow=True,
    ),
    Mutant(
        "amnesia-ends-with-an-older-leader",
        "whoever has lost its election file votes again though it has caught up with an older leader only (E3)",
        (Edit("consensus.repair.maybe_recall", "amnesia.leader_epoch != state.epoch", "amnesia.leader_epoch < 0"),),
        profiles=("disks",),
        slow=True,
    ),
    Mutant(
        "amnesia-ends-before-the-leaders-end",
        "whoever has lost its election file votes again before it has all that its leader has (E3)",
        (Edit("consensus.fetch_follower._append", "if not partition.records:", "if True:"),),
        profiles=("disks",),
        slow=True,
    ),
    Mutant(
        "amnesiac-counts",
        "whoever has lost its election file acknowledges under its own name (E3)",
        (
            Edit(
                "consensus.repair.is_anonymous",
                "asks_first(state) or state.amnesia is not None",
                "asks_first(state)",
            ),
        ),
        profiles=("disks",),
    ),
    Mutant(
        "damaged-log-vouches",
        "a replica that has lost records fetches from its end under its own name, as if it had them (S1)",
        (Edit("consensus.repair.is_anonymous", "asks_first(state) or ", ""),),
        profiles=("disks",),
    ),
    Mutant(
        "damaged-log-stands",
        "a replica that has lost records stands for election all the same (S1)",
        (Edit("consensus.state.ReplicaState.may_stand", " and not self.log.holes", ""),),
        profiles=("disks",),
        slow=True,
    ),
)
