"""Changes every comparison, condition and assignment of the core, one at a time, and says which changes nobody notices.

    python -m tests.simulation.sweep --modules replication,election --seeds 20 --part 1/4

Mutants (`mutants`) are bugs that somebody thought of; these are all the small ones that nobody thought of. What gets
away is a question: is there a check that the simulator lacks, a situation that it never makes, or does it not matter?
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import inspect
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import attrs

from kraftlib.testing.campaign import Finding, run_seed
from tests.simulation.mutation import replaced

MODULES: Final = (
    "election", "transitions", "replication", "quorum", "connections", "checks", "obligations", "log_view",
    "reconfiguration", "snapshotting", "received", "contact", "start", "joining", "upgrading", "voters", "state",
)  # fmt: skip
PROFILES: Final = ("swarm", "membership", "crashes", "network")
SECONDS_A_SEED: Final = 30

NEIGHBOURS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip

LOGGED: Final = frozenset({"log.info", "log.warning", "log.debug", "log.log", "state.refuse", "ensure"})
"""Calls that change nothing but what people read, or that only guard."""


@attrs.frozen
class Change:
    """One small change of one function."""

    where: str
    line: int
    what: str
    source: str


def changes(module: str) -> Iterator[Change]:
    """Yield every change of a module of the core."""
    loaded = importlib.import_module(f"kraftlib.consensus.{module}")
    tree = ast.parse(inspect.getsource(loaded))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield from changes_of(f"consensus.{module}.{node.name}", node)
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("__"):
                    yield from changes_of(f"consensus.{module}.{node.name}.{inner.name}", inner)


def changes_of(where: str, function: ast.FunctionDef) -> Iterator[Change]:
    """Yield every change of a function."""
    count = sum(1 for _ in ast.walk(function))
    for number in range(count):
        for what, mutate in edits_at(list(ast.walk(function))[number]):
            changed = copy.deepcopy(function)
            place = list(ast.walk(changed))[number]
            mutate(place)
            line = getattr(place, "lineno", function.lineno)
            text = ast.unparse(ast.fix_missing_locations(changed))
            if text != ast.unparse(function):
                yield Change(where, line, what, text)


def edits_at(node: ast.AST) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Yield what can be changed at one place of the syntax tree."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in NEIGHBOURS:
        other = NEIGHBOURS[type(node.ops[0])]
        yield f"{ast.unparse(node)}  ~>  {other.__name__}", lambda n: n.ops.__setitem__(0, other())
    elif isinstance(node, ast.Compare) and len(node.ops) == 2:
        for place in (0, 1):
            if type(node.ops[place]) in NEIGHBOURS:
                swapped = NEIGHBOURS[type(node.ops[place])]
                yield (
                    f"{ast.unparse(node)}  ~>  {swapped.__name__} at {place}",
                    lambda n, place=place, swapped=swapped: n.ops.__setitem__(place, swapped()),
                )
    elif isinstance(node, ast.BoolOp):
        for place in range(len(node.values)):
            yield (
                f"{ast.unparse(node)}  ~>  without {ast.unparse(node.values[place])}",
                lambda n, place=place: n.values.pop(place) if len(n.values) > 2 else n.values.__setitem__(
                    place, ast.Constant(isinstance(n.op, ast.And))
                ),
            )  # fmt: skip
    elif isinstance(node, ast.If | ast.IfExp):
        for value in (True, False):
            yield (
                f"if {ast.unparse(node.test)}  ~>  {value}",
                lambda n, value=value: setattr(n, "test", ast.Constant(value)),
            )
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("max", "min"):
        if len(node.args) == 2:
            for place in (0, 1):
                yield (
                    f"{ast.unparse(node)}  ~>  {ast.unparse(node.args[place])} alone",
                    lambda n, place=place: n.args.__setitem__(1 - place, n.args[place]),
                )
    elif (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and isinstance(node.right, ast.Constant)
    ):
        yield f"{ast.unparse(node)}  ~>  {ast.unparse(node.left)}", lambda n: setattr(n, "right", ast.Constant(0))
    elif isinstance(node, ast.FunctionDef | ast.If | ast.For | ast.While):
        yield from removals(node)
    if isinstance(node, ast.If):
        yield from removals(node)


def removals(node: Any) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Yield the statements of a block that can be left out: what they change is not changed."""
    for place, statement in enumerate(node.body):
        text = ast.unparse(statement).split("\n", 1)[0]
        is_change = isinstance(statement, ast.Assign | ast.AugAssign) and not isinstance(
            statement.targets[0] if isinstance(statement, ast.Assign) else statement.target, ast.Name | ast.Tuple
        )
        is_more = isinstance(statement, ast.AugAssign)
        is_call = (
            isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Call)
            and ast.unparse(statement.value.func) not in LOGGED
        )
        if is_change or is_more or is_call:
            yield f"without: {text}", lambda n, place=place: n.body.__setitem__(place, ast.Pass())


class TooLongError(Exception):
    """A seed did not come to an end."""


def survives(change: Change, seeds: int, first: int) -> str | None:
    """Run seeds with the change; return what noticed it, None if nothing did."""

    def too_long(*_: Any) -> None:
        raise TooLongError("a seed did not come to an end")

    before = signal.signal(signal.SIGALRM, too_long)
    try:
        with replaced(change.where, change.source):
            for number in range(seeds):
                signal.alarm(SECONDS_A_SEED)
                result = run_seed(first + number, profile=PROFILES[number % len(PROFILES)])
                if isinstance(result, Finding):
                    return f"{number + 1} seeds, {result.invariant}: {result.what[:80]}"
    except Exception as error:  # noqa: BLE001 - whatever the change does: it shows
        return f"{type(error).__name__}: {str(error)[:80]}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return None


def main(arguments: Sequence[str]) -> int:
    """Try the changes of some modules; print those that nobody notices."""
    parser = argparse.ArgumentParser(prog="sweep", description=__doc__)
    parser.add_argument("--modules", default=",".join(MODULES))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=50_000)
    parser.add_argument("--part", default="1/1", metavar="I/N")
    parser.add_argument("--match", default="", help="only changes whose place or text contains this")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args(arguments)
    part, parts = map(int, options.part.split("/"))
    found = [change for module in options.modules.split(",") for change in changes(module)]
    found = [change for change in found if options.match in f"{change.where} {change.what}"][part - 1 :: parts]
    away = 0
    began = time.monotonic()
    for change in found:
        noticed = survives(change, options.seeds, options.first)
        away += noticed is None
        if noticed is None or options.verbose:
            print(
                f"{'GOT AWAY' if noticed is None else noticed}  {change.where}:{change.line}  {change.what}", flush=True
            )
    print(f"{len(found) - away} of {len(found)} changes noticed, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
