"""A bound on how far peers may raise the epoch: on the sum of all raises, not on each of them (scenario E17).

Epochs have 31 bits, and a replica that has taken one over never goes back. A stranger on an open port, or one broken
replica, could wear them out by a few thousand Votes, each of which is believed. So a raise costs time: the replica owes
`EPOCH_COST_MS` for each epoch that it enters, and pays it off as time passes (a token bucket, with its content kept as
milliseconds of debt). A peer is not believed beyond a debt of `epoch_jump_max` epochs. Elections need an epoch each and
never come near; and where the whole debt was made, the next epoch is believed `EPOCH_COST_MS` later.

The debt is durable with the vote, so that a restart is no way around it. While a process is down nothing is paid off:
no clock tells for how long it was down.

**At the last epoch** a replica stands no more: an election takes one epoch, and giving it up may take another. It still
votes and follows. Only a new quorum begins with a low epoch (`kraftlib recover`).
"""

from __future__ import annotations

from typing import Final

from kraftlib.consensus.state import ReplicaState
from kraftlib.types import Epoch

EPOCH_COST_MS: Final = 100
"""Ten epochs a second: 2^31 of them last for six years."""


def raises_too_far(state: ReplicaState, epoch: Epoch, source: str) -> bool:
    """Whether a peer names an epoch that is too far ahead to be believed now; that is counted and logged."""
    left = state.config.epoch_jump_max - -(-state.epoch_debt_ms // EPOCH_COST_MS)
    if epoch - state.epoch <= left:
        return False
    text = f"{source} names epoch {epoch}, this replica is in {state.epoch}, and peers may raise it by {left} now:"
    text += f" epoch_jump_max={state.config.epoch_jump_max} at once, and one more each {EPOCH_COST_MS} ms. Which"
    text += " replicas name such epochs? If they are right, restart this replica with a greater epoch_jump_max"
    state.refuse("epoch jump", text)
    return True


def charge(state: ReplicaState, epochs: int) -> None:
    """Owe for this many epochs that were entered."""
    owe(state, state.epoch_debt_ms + epochs * EPOCH_COST_MS)


def owe(state: ReplicaState, debt_ms: int) -> None:
    """Owe this much from now on, up to the most that peers may make us owe: a file may hold any debt."""
    state.epochs_paid_at_ms = state.now_ms + min(debt_ms, state.config.epoch_jump_max * EPOCH_COST_MS)
