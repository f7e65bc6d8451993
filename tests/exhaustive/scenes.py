"""The worlds that are tried. Each is searched to its end, and in each the rules that it is for can fail."""

from __future__ import annotations

from typing import Final

import attrs

from kraftlib.types import ElectionState
from tests.exhaustive.cores import IDS, first_batch
from tests.exhaustive.search import Budget, Scene, batches_of

NEW: Final = ElectionState()


ELECTED_BY_THE_LAST: Final = (
    "7002 timer election",
    "7002 -> 7001 VoteRequest pre_vote=True",
    "7001 -> 7002 VoteResponse",
    "7002 -> 7003 VoteRequest pre_vote=True",
    "7003 -> 7002 VoteResponse",
    "7002 -> 7003 VoteRequest pre_vote=False",
    "7003 -> 7002 VoteResponse",
    "7002 flushes",
)
"""The second replica leads, by the vote of the third one; the first one has not heard of it."""


COMMITTED_BY_TWO: Final = (
    "7001 timer election",
    "7001 -> 7002 VoteRequest pre_vote=True",
    "7002 -> 7001 VoteResponse",
    "7001 -> 7002 VoteRequest pre_vote=False",
    "7002 -> 7001 VoteResponse",
    "7001 -> 7002 BeginQuorumEpochRequest",
    "7002 -> 7001 BeginQuorumEpochResponse",
    "7002 -> 7001 FetchRequest",
    "7001 -> 7002 FetchResponse",
    "7001 flushes",
    "7002 flushes",
    "7002 -> 7001 FetchRequest",
)
"""The first of two leads, its epoch is proved, and the other one waits for records."""

STANDS: Final = (
    "7001 timer election",
    "7001 -> 7002 VoteRequest pre_vote=True",
    "7002 -> 7001 VoteResponse",
    "7001 -> 7003 VoteRequest pre_vote=True",
)
"""The first replica stands, and nobody has heard so."""


def _scene(
    name: str, about: str, budget: Budget, *epochs: tuple[int, ...], epoch_max: int, committed: int = 0
) -> Scene:
    """A scene whose replicas begin with these logs, none of them led."""
    last = max((log[-1] for log in epochs if log), default=0)
    return Scene(
        name=name,
        about=about,
        logs=tuple(batches_of(log) for log in epochs),
        elections=tuple(ElectionState(epoch=last) for _ in epochs),
        budget=budget,
        epoch_max=epoch_max,
        committed=committed,
    )


def _deposed(scene: Scene) -> Scene:
    """The first replica led the epoch that is over, and knows it."""
    epoch = scene.elections[0].epoch
    return attrs.evolve(scene, elections=(ElectionState(epoch=epoch, leader_id=IDS[0]), *scene.elections[1:]))


SHORT: Final = (
    _scene(
        "two",
        "two voters, two epochs, one record",
        Budget(appends=1, timers=2),
        (), (),
        epoch_max=2,
    ),
    _scene(
        "two-power",
        "two voters, one epoch, one loss of power at any action",
        Budget(power_losses=1, timers=1),
        (), (),
        epoch_max=1,
    ),
    _scene(
        "two-late",
        "two voters, two epochs, one lost or late message",
        Budget(faults=1, timers=2),
        (), (),
        epoch_max=2,
    ),
    _scene(
        "three",
        "three voters, one election",
        Budget(timers=1),
        (), (), (),
        epoch_max=1,
    ),
    _scene(
        "three-power",
        "three voters, one election, one loss of power at any action",
        Budget(power_losses=1, timers=1),
        (), (), (),
        epoch_max=1,
    ),
    _scene(
        "three-late",
        "three voters, one election, one lost or late message",
        Budget(faults=1, timers=1),
        (), (), (),
        epoch_max=1,
    ),
    _scene(
        "behind",
        "three voters, one of which lacks what is committed",
        Budget(timers=1),
        (1, 1), (1, 1), (1,),
        epoch_max=2,
        committed=2,
    ),
    _scene(
        "divergence",
        "three voters, one of which has records that nobody else has",
        Budget(timers=1),
        (1, 2, 2), (1,), (1,),
        epoch_max=3,
        committed=1,
    ),
    attrs.evolve(
        _scene(
            "late-answer",
            "a log that is as long as its leader's and another one, after a Fetch that was late",
            Budget(),
            (1, 2, 2), (1,), (1,),
            epoch_max=3,
            committed=1,
        ),
        path=(
            *ELECTED_BY_THE_LAST,
            "7002 appends a record",
            "7002 -> 7001 VoteRequest",
            "7002 -> 7001 BeginQuorumEpochRequest",
            "late: 7001 -> 7002 FetchRequest",
            "7001's request to 7002 fails",
        ),
    ),
    attrs.evolve(
        _scene(
            "rivals",
            "three voters, two of them stand in one epoch",
            Budget(),
            (), (), (),
            epoch_max=1,
        ),
        path=(
            *STANDS,
            "7002 timer election",
            "7002 -> 7003 VoteRequest pre_vote=True",
            "7003 -> 7002 VoteResponse",
        ),
    ),
    _scene(
        "forgetful",
        "two voters, two elections, a vote that is given may be lost",
        Budget(lost_votes=1, timers=2),
        (1,), (1,),
        epoch_max=3,
        committed=1,
    ),
    Scene(
        name="removal",
        about="two voters, one of which is removed, one loss of power at any action, one more election",
        logs=((first_batch(IDS[:2]),),) * 2,
        elections=(ElectionState(epoch=1),) * 2,
        budget=Budget(removals=1, power_losses=1, timers=1),
        epoch_max=3,
        committed=1,
        is_dynamic=True,
        path=COMMITTED_BY_TWO,
    ),
    _scene(
        "figure-8",
        "two records of old epochs, neither of them committed",
        Budget(timers=1),
        (1,), (2,), (),
        epoch_max=3,
    ),
)  # fmt: skip
"""Tried with every commit."""

LONG: Final = (
    *SHORT,
    _scene(
        "two-all",
        "two voters, two epochs, one record, one loss of power, one lost or late message",
        Budget(appends=1, power_losses=1, faults=1, timers=2),
        (), (),
        epoch_max=2,
    ),
    attrs.evolve(
        _scene(
            "two-seek",
            "two voters that ask each other for the leader, two epochs",
            Budget(timers=2),
            (), (),
            epoch_max=2,
        ),
        seeks=True,
    ),
    _scene(
        "three-twice",
        "three voters, two elections, one record",
        Budget(appends=1, timers=2),
        (), (), (),
        epoch_max=2,
    ),
    _deposed(
        _scene(
            "deposed",
            "a deposed leader with records that nobody else has says good-bye, and meets its successor",
            Budget(timers=1),
            (1, 2, 2), (1,), (1,),
            epoch_max=3,
            committed=1,
        )
    ),
    Scene(
        name="removal-of-three",
        about="three voters, one of which is removed, one loss of power at any action, two elections",
        logs=((first_batch(IDS),),) * 3,
        elections=(ElectionState(epoch=1),) * 3,
        budget=Budget(removals=1, power_losses=1, timers=2),
        epoch_max=3,
        committed=1,
        is_dynamic=True,
    ),
    _scene(
        "figure-8-twice",
        "two records of old epochs, two more epochs",
        Budget(timers=2),
        (1,), (2,), (),
        epoch_max=4,
    ),
)  # fmt: skip
"""Minutes to hours each: tried by hand when the core changes."""
