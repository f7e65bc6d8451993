"""Bugs of how many observers are told in rounds (decision 0019)."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        "voters-wait-for-rounds",
        "a voter that fetches where there are many observers waits with them",
        (
            Edit(
                "consensus.fetch_leader.is_told_in_rounds",
                "fetcher is not None and fetcher not in state.voters",
                "True",
            ),
        ),
        profiles=("core",),
    ),
    Mutant(
        "a-round-forgets-the-rest",
        "who is not in the first round hears of a record when its time is up",
        (
            Edit(
                "consensus.observer_rounds._next_round",
                "waiting.rest_until_ms if len(chosen) == share else None",
                "None",
            ),
        ),
        profiles=("core",),
    ),
    Mutant(
        "who-asked-last-is-told-first",
        "an observer may be passed over for ever",
        (
            Edit(
                "consensus.observer_rounds._with_news",
                "waiting.fetches.values()",
                "reversed(waiting.fetches.values())",
            ),
        ),
        profiles=("core",),
    ),
    Mutant(
        "all-observers-get-the-same-records",
        "observers at different offsets share one answer",
        (
            Edit(
                "consensus.observer_rounds.answer_observers",
                "start_offset = parked.fetch_offset if",
                "start_offset = chosen[0].fetch_offset if",
            ),
        ),
        profiles=("core",),
    ),
    Mutant(
        "records-ask-for-no-round",
        "observers hear of a record only once it is committed",
        (
            Edit(
                "consensus.fetch_leader.handle_records",
                "role.waiting.ask_for_round(state.now_ms + COMMIT_WAIT_MS)",
                "pass",
            ),
        ),
        profiles=("core",),
    ),
    Mutant(
        "new-voters-wait-for-a-round",
        "an observer that has become a voter still waits with the observers",
        (Edit("consensus.fetch_leader.follow_voters", "each.fetcher in state.voters", "False"),),
        profiles=("core",),
    ),
)
