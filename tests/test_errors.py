"""kraftlib.errors: one tree, and what became of the record."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import pytest

from kraftlib import errors
from kraftlib.types import LeaderAndEpoch

ERRORS = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Exception)]


@pytest.mark.parametrize("error", ERRORS)
def test_whoever_catches_kraft_error_catches_all_but_our_own_bugs(error: type[Exception]) -> None:
    assert issubclass(error, errors.KraftError) == (error is not errors.InvariantError)


@pytest.mark.parametrize("error", ERRORS)
def test_the_tree_in_the_docstring_names_every_error(error: type[Exception]) -> None:
    assert f" {error.__name__} " in (errors.__doc__ or "").replace("\n", " \n ")


def test_not_leader_says_where_to_go() -> None:
    error = errors.NotLeaderError("replica 2 follows", leader=LeaderAndEpoch(1, 7))
    assert (str(error), error.leader.leader_id, error.leader.epoch) == ("replica 2 follows", 1, 7)


def test_an_unknown_outcome_says_where_to_look() -> None:
    error = errors.OutcomeUnknownError("leadership lost", base_offset=9, epoch=3)
    assert (error.base_offset, error.epoch) == (9, 3)


def test_a_storage_error_says_where_it_is() -> None:
    error = errors.CorruptBatchError("checksum", path="00.log", position=61)
    assert (error.path, error.position) == ("00.log", 61)


def test_ensure_raises_and_is_not_switched_off_by_optimisation() -> None:
    errors.ensure(True, "holds")
    with pytest.raises(errors.InvariantError, match="two is not one"):
        errors.ensure(2 == 1, "two is not one")

    program = "from kraftlib.errors import ensure; ensure(False, 'still there')"
    done = subprocess.run(
        [sys.executable, "-OO", "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert "InvariantError: still there" in done.stderr


@pytest.mark.parametrize(
    "error",
    [errors.ClosedError("closed"), errors.StorageError("full", path="x"), errors.OutcomeUnknownError("lost", epoch=2)],
)
def test_an_error_survives_the_way_between_processes(error: errors.KraftError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
