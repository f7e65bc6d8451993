"""A replica whose state machine has failed votes and replicates, and leads as a last resort until it is restarted.

Beyond Kafka. It can no longer say what a record has led to, and another voter may. Its log is as good as ever: it is
fetched, counts for majorities, and decides whom this replica votes for.

A leader goes on leading until another voter has everything that it has: if it left before, and the others needed its
vote, that vote would be refused to each of them for a shorter log. Nothing new is appended here meanwhile. The voter
with everything may be one whose state machine has failed, too, and a third one with a shorter log would then be refused
both votes. So for one fetch timeout the leader waits for every voter that may be alive, and only then hands over to the
first that has everything. It follows that:

* if it is the only voter, or no other one catches up, it leads on and takes nothing;
* if the state machines of all voters have failed, they lead by turns, and no record is appended that no replica could
  apply.

The others may lack records that it has, and then no voter is elected without it. So it stands as they do, but later by
`ReplicaState.reluctance_ms`: two rounds of the others, in each of which they miss a leader for the fetch timeout and
hold an election that lasts two election timeouts at most. A voter that can be elected without it has been by then, but
for chance; and if it stands too early after all, that costs an epoch. Elected it takes nothing, brings the others up to
date, and hands over as above; the fetch timeout in which it waits for all of them begins with its leadership, and is
doubled for those that live each time that it is elected again. So a voter that must fetch a whole snapshot gets all of
it from one leader in the end, though two voters of last resort take turns, each with a snapshot of its own.
"""

from __future__ import annotations

from kraftlib.consensus.actions import Action
from kraftlib.consensus.events import StateMachineFailed
from kraftlib.consensus.extensions.priority import is_ready
from kraftlib.consensus.roles import Leader, Progress, Transfer
from kraftlib.consensus.state import FADING_MAX, ReplicaState, logger
from kraftlib.consensus.transitions import stop_standing
from kraftlib.types import ReplicaKey

REASON = "the state machine has failed"


def handle_state_machine_failed(state: ReplicaState, event: StateMachineFailed) -> list[Action]:
    """Stop standing. A leader hands over once it can (`handing_over_to`)."""
    if state.machine_failed_ms is None:
        state.machine_failed_ms = state.now_ms
    logger.error(
        "%s: %s: this replica votes and replicates, and leaves it to others to lead until it is restarted",
        *(state.id_text, REASON),
    )
    return stop_standing(state, REASON)


def handing_over_to(state: ReplicaState, role: Leader, successors: tuple[ReplicaKey, ...]) -> Transfer | None:
    """Return the hand-over to the first of `successors` that has everything and lives; None, while there is none.

    Not while another one may catch up, nor in the midst of a voter change: its caller waits for our answer,
    which has its time.
    """
    waits = hand_over_deadline_ms(state, role) is not None
    if role.change is not None or (
        waits and any(_may_catch_up(state, role, other) for other in role.progress.values())
    ):
        return None
    for key in successors:
        if is_ready(state, role.progress[key.id]):
            return Transfer(target_id=key.id, deadline_ms=state.now_ms + state.config.request_timeout_ms)
    return None


def hand_over_deadline_ms(state: ReplicaState, role: Leader) -> int | None:
    """When a leader waits for the slower voters no longer; None if its state machine works, or it is past."""
    if state.machine_failed_ms is None:
        return None
    patience_ms = state.config.fetch_timeout_ms << min(max(state.last_resorts - 1, 0), FADING_MAX)
    due_ms = _useless_since_ms(state, role) + patience_ms
    return None if due_ms <= state.now_ms else due_ms


def _useless_since_ms(state: ReplicaState, role: Leader) -> int:
    """Return since when this leader takes nothing."""
    return max(state.machine_failed_ms or 0, role.elected_ms)


def _may_catch_up(state: ReplicaState, role: Leader, progress: Progress) -> bool:
    """Whether a voter lacks something and may have it soon: it lives, or has had no fetch timeout to say so yet."""
    heard_ms = _useless_since_ms(state, role) if progress.heard_ms is None else progress.heard_ms
    is_silent = state.now_ms - heard_ms >= state.config.fetch_timeout_ms
    return progress.has_space and not is_silent and progress.end_offset < state.log.end_offset
