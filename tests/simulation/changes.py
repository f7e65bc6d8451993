"""Every small change of a function of the core that a hurried hand could make: what `sweep` tries one at a time.

A comparison becomes its neighbour, a condition loses a part or is decided, `+ 1` goes, `min` and `max` keep one side or
change places, a statement is left out, an action is missing from a list or comes first, one offset stands for another.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

NEIGHBOURS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip

LOOKALIKES: Final = {
    "end_offset": "flushed_offset", "flushed_offset": "end_offset", "start_offset": "end_offset",
    "granted": "rejected", "rejected": "granted", "progress": "observers", "observers": "progress",
    "high_watermark": "committed_offset", "committed_offset": "high_watermark",
}  # fmt: skip
"""Attributes that stand beside each other and mean something else."""

LOGGED: Final = frozenset({"logger.info", "logger.warning", "logger.debug", "logger.log", "state.refuse", "ensure"})
"""Calls that change nothing but what people read, or that only guard."""


@attrs.frozen
class Change:
    """One small change of one function."""

    where: str
    line: int
    end_line: int
    """The last line of what is changed."""
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
        node = list(ast.walk(function))[number]
        for what, mutate in edits_at(node):
            changed = copy.deepcopy(function)
            place = list(ast.walk(changed))[number]
            mutate(place)
            text = ast.unparse(ast.fix_missing_locations(changed))
            if text == ast.unparse(function):
                continue
            line, end_line = getattr(node, "lineno", function.lineno), getattr(node, "end_lineno", function.lineno)
            yield Change(where, line, end_line, what, text)


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
        other_name = {"max": "min", "min": "max"}[node.func.id]
        yield f"{ast.unparse(node)}  ~>  {other_name}", lambda n: setattr(n.func, "id", other_name)
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in LOOKALIKES:
        lookalike = LOOKALIKES[node.attr]
        yield f"{ast.unparse(node)}  ~>  {lookalike}", lambda n: setattr(n, "attr", lookalike)
    elif isinstance(node, ast.List) and isinstance(node.ctx, ast.Load) and len(node.elts) > 0:
        for place, element in enumerate(node.elts):
            yield f"{short(node)}  ~>  without {short(element)}", lambda n, place=place: n.elts.pop(place)
        if len(node.elts) > 1:
            yield f"{short(node)}  ~>  the last one first", lambda n: n.elts.insert(0, n.elts.pop())
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value}  ~>  {not node.value}", lambda n: setattr(n, "value", not n.value)
    elif (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and isinstance(node.right, ast.Constant)
    ):
        yield f"{ast.unparse(node)}  ~>  {ast.unparse(node.left)}", lambda n: setattr(n, "right", ast.Constant(0))
    elif isinstance(node, ast.FunctionDef | ast.If | ast.For | ast.While):
        yield from removals(node)
    if isinstance(node, ast.If):
        yield from removals(node)


def short(node: ast.AST) -> str:
    """Return the source of a node, cut where it is long."""
    text = ast.unparse(node)
    return text if len(text) <= 60 else text[:57] + "..."


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
