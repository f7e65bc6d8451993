"""What the design says about the source, checked over its syntax trees: layers, purity, bans, mirror, no traces.

Each rule has a table of exceptions with reasons, and an exception that is not needed any more fails.
"""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "kraftlib"

# An import goes to a lower number or stays in its own package; packages of one number never meet.
LAYERS: Final[dict[str, float]] = {
    "errors": 0,
    "types": 0,
    "config": 0,
    "environment": 0,
    "plain_values": 0,
    "properties": 0,
    "tls_properties": 0,
    "sasl_properties": 0,
    "validators": 0,
    "forks": 0,
    "frozen": 0,
    "sorted_names": 0,
    "form": 0,
    "codec": 1,
    "records": 1.5,  # stands on codec, and codec never on it
    "wire": 2,
    "metadata": 2,
    "security": 2.5,  # knows the requests that it judges; its options are fields of config, see below
    "consensus": 3,  # decisions and
    "storage": 3,  # deeds on disk do not know each other
    "proposals": 3.5,  # what any replica appends, through the leader: without sockets or replicas
    "runtime": 4,
    "wire_client": 4.5,  # what tools ask a quorum with
    "find_leader": 4.7,  # a question that they all ask first
    "coordination": 4.6,  # a state machine and the way in to it; a way in is a client or a replica
    "doctor": 5,
    "recipes": 5,
    "machines": 5,
    "blocking": 5.5,  # the client and the ways in for threads: a public face of runtime and recipes
    "controller": 5,
    "testing": 5,
    "archive": 5,
    "offline": 5,
    "analysis": 5,
    "spark": 6,
    "compat": 6,  # the interfaces of others, on recipes
    "migration": 6.5,  # reads with compat, and writes what the controller begins with
    "cli": 7,
}
# Options that are fields of RaftConfig. Such a module imports layer 0 only.
OPTIONS: Final = {
    "kraftlib.security.tls",
    "kraftlib.security.sasl",
    "kraftlib.security.limits",
    "kraftlib.security.access",
}
PURE: Final = {
    "errors",
    "types",
    "config",
    "plain_values",
    "properties",
    "tls_properties",
    "sasl_properties",
    "validators",
    "codec",
    "records",
    "wire",
    "metadata",
    "consensus",
}

# Where purity ends: clocks, files, sockets, threads, processes, chance that nobody can repeat.
IMPURE_MODULES: Final = set(
    "asyncio concurrent fcntl glob mmap multiprocessing os pathlib random secrets select selectors shutil signal "
    "socket socketserver ssl subprocess tempfile threading time".split()
)
HARMLESS_NAMES: Final = {"os.PathLike", "os.fspath", "random.Random"}  # types and a pure function
IMPURE_CALLS: Final = {"open", "input", "print"}
IMPURE_METHODS: Final = {"datetime.now", "datetime.utcnow", "date.today", "uuid.uuid1", "uuid.uuid4", "io.open"}
# Of a path that was handed in. (`open` and `read_bytes` are also what connections and readers of bytes do.)
PATH_METHODS: Final = {"read_text", "write_text", "mkdir", "unlink", "iterdir", "stat"}
PURE_EXCEPT: Final[dict[tuple[str, str], str]] = {
    ("types", "secrets"): "new ids must not repeat, whatever seed a process began with",
    ("config", "pathlib"): "a configuration names a directory, and is read from a TOML file",
    ("plain_values", "pathlib"): "a path in a file is relative to that file",
    ("config", "read_text"): "reads its TOML file, before anything runs",
}

BANNED_IMPORTS: Final = {"pickle", "marshal", "shelve"}
BANNED_CALLS: Final = {"eval", "exec", "compile", "__import__", "yaml.load"}
BANNED_EXCEPT: Final[dict[tuple[str, str], str]] = {
    ("", "import of a computed name"): "the public names: module names from a table in the same file",
    ("spark", "import of a computed name"): "the public names: module names from a table in the same file",
    ("cli", "import of a computed name"): "the commands: names from a table in the same file",
    ("analysis", "import of a computed name"): "valueDecoder: whoever sets options of a reader runs code of their own",
    ("wire", "import of a computed name"): "the messages of an API: names from its own enumeration of APIs",
    ("codec", "exec"): "generated.py: a text of names and types that our own declarations give, and of nothing else",
    ("testing", "import of a computed name"): "machine_contract: a class that its caller holds, in another process",
}

NO_TEST_MODULE: Final[dict[str, str]] = {
    "storage/interface.py": "protocols; kraftlib.testing holds the contract that implementations pass",
    "storage/log/hole.py": "a value; tests/storage/damage",
    "compat/kazoo/[cnpr]*[nes].py": "parts of the client; tests/compat/kazoo/test_tree.py and test_client.py use them",
    "coordination/access.py": "protocols; tests/coordination/test_memory_access.py and the tests of each other access",
    "coordination/[hklqs]*.py": "parts of the machine, which tests/coordination/test_machine.py asks for all of them",
    "coordination/messages.py": "declarations; the tests of the machine send all of them",
    "machines/[lpv]*.py": "parts of Machines; tests/machines/test_machines.py asks for all of them",
    "machines/messages.py": "declarations; tests/machines/test_machines.py sends all of them, and garbage",
    "proposals/ports.py": "protocols; the fakes of tests/proposals and real replicas keep them",
    "recipes/calls.py": "calls of a session; tests/recipes/test_session.py and test_groups.py make and leave them",
    "recipes/pages.py": "answers put together; tests/recipes/test_map.py and test_groups.py",
    "recipes/holding.py": "blocks; tests/recipes/test_terms.py and test_groups.py enter and leave them",
    "recipes/sessions.py": "the session that is shared; tests/recipes/test_session.py",
    "runtime/ports.py": "protocols; the fakes of tests/runtime and the real neighbours keep them",
    "runtime/client/lifetime.py": "a part of the client; tests/runtime/client/test_raft_client.py",
    "runtime/client/loop_thread.py": "a part of the client for threads; tests/test_blocking.py",
    "runtime/client/parts.py": "a part of the client; tests/runtime/client/test_arguments.py",
    "runtime/slices.py": "a part of the applier; tests/runtime/test_applier.py",
    "runtime/net/receiver.py": "a protocol; the tests of the network and of the router",
    "runtime/net/transport.py": "protocols; the tests of each transport",
    "testing/*_faults.py": "kinds of trouble; tests/testing/test_faults.py begins and ends each of them",
    "analysis/audit_findings.py": "values; tests/analysis/test_audit_judge.py and test_audit.py",
    "analysis/audit_rows.py": "values; tests/analysis/test_audit_judge.py",
    "testing/draws.py": "a part of a run; tests/testing/test_simulation.py",
    "testing/fault_parts.py": "what these share; tests/testing/test_faults.py",
    "controller/results.py": "values; the tests of every decision",
    "controller/cluster.py": "a fold; tests/controller/test_state.py, and every test of a decision on brokers",
    "controller/topics.py": "a fold; tests/controller/test_state.py and test_quorum_controller.py",
    "controller/configs.py": "a fold; tests/controller/test_state.py and test_create_topics.py",
    "controller/keyed.py": "a fold; tests/controller/test_state.py and test_producer_ids.py",
    "wire/messages/*.py": "declarations; tests/wire/test_messages.py takes all of them in every version",
    "metadata/*_records.py": "declarations; tests/wire/test_messages.py and tests/metadata/test_frame.py",
}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), filename=str(path))


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def area(path: Path) -> str:
    """Return the package or top-level module that `path` belongs to; empty for `kraftlib/__init__.py`."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "cli" if first == "__main__" else "" if first == "__init__" else first


def imports(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and full name of all that is imported below `node`, for type checking or not."""
    for child in ast.walk(node):
        if isinstance(child, ast.Import):
            yield from ((child.lineno, alias.name) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            # A relative import is left to the linter of the reader: none is allowed, see below.
            yield from ((child.lineno, f"{'.' * child.level}{child.module or ''}.{a.name}") for a in child.names)


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for an expression of that form, the last name for others."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


# Layers -------------------------------------------------------------------------------------------


def test_every_import_goes_down_or_stays_in_its_package() -> None:
    wrong = []
    for path in sources():
        if area(path) == "":
            continue  # the public names, which come from everywhere
        for line, name in imports(tree(path)):
            parts = name.split(".")
            if name.startswith("."):
                wrong.append(f"{path}:{line} is a relative import")
            elif parts[0] == "kraftlib" and parts[1:] != ["__version__"]:
                own, other = area(path), parts[1]
                if name.rpartition(".")[0] in OPTIONS and own in ("config", "properties", "sasl_properties"):
                    continue
                if f"kraftlib.{'.'.join(path.relative_to(PACKAGE).with_suffix('').parts)}" in OPTIONS:
                    own = "config"
                if own != other and not allowed_to_import(own, other):
                    wrong.append(f"{path}:{line} {own} must not import {name}")
    assert wrong == []


def test_the_library_imports_neither_its_tools_nor_its_tests() -> None:
    """They are not in the wheel."""
    ours = {"tools", "tests", "examples"}
    assert [(str(p), name) for p in sources() for _, name in imports(tree(p)) if name.split(".")[0] in ours] == []


def allowed_to_import(own: str, other: str) -> bool:
    if LAYERS[own] == LAYERS.get(other) == 0:
        return True
    return other in LAYERS and LAYERS[other] < LAYERS[own]


def test_every_package_has_a_layer() -> None:
    assert {area(path) for path in sources()} - {""} <= set(LAYERS)


def test_crc32c_has_one_importing_module() -> None:
    importing = {
        str(p.relative_to(PACKAGE)) for p in sources() for _, name in imports(tree(p)) if "crc32c" in name.split(".")[0]
    }
    assert importing <= {"records/checksum.py"}


# Purity -------------------------------------------------------------------------------------------


def impurities(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and cause of all in `path` that a replay could not repeat."""
    for line, name in imports(tree(path)):
        if name.split(".")[0] in IMPURE_MODULES - {"os", "random"} or (
            name.split(".")[0] in ("os", "random") and "." in name and name not in HARMLESS_NAMES
        ):
            yield line, name.split(".")[0]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and dotted(node.value) in ("os", "random"):
            if dotted(node) not in HARMLESS_NAMES:
                yield node.lineno, dotted(node)
        elif isinstance(node, ast.Call):
            called = dotted(node.func)
            method = called.rpartition(".")[2]
            if called in IMPURE_CALLS or called.endswith(tuple(IMPURE_METHODS)):
                yield node.lineno, called
            elif "." in called and method in PATH_METHODS:
                yield node.lineno, method
            elif called.endswith("Random") and not node.args:
                yield node.lineno, "Random without a seed"


def test_layers_0_to_2_and_consensus_know_no_clock_file_socket_thread_or_chance() -> None:
    found = {
        (area(path), what): f"{path}:{line} {what}"
        for path in sources()
        if area(path) in PURE
        for line, what in impurities(path)
    }
    assert [where for key, where in found.items() if key not in PURE_EXCEPT] == []
    assert set(PURE_EXCEPT) <= set(found), "an exception that nobody needs"


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "import os.path",
        "from os import read",
        "import os\nos.read(0, 1)",
        "from random import choice",
        "import random\nrandom.random()",
        "import random\nchance = random.Random()",
        "open('file')",
        "path.read_text()",
        "import datetime\ndatetime.datetime.now()",
        "import uuid\nuuid.uuid4()",
        "def late():\n    from asyncio import sleep",
    ],
)
def test_the_purity_check_sees(text: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(text)
    assert list(impurities(tmp_path / "module.py")) != []


def test_the_purity_check_lets_types_and_seeded_chance_pass(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        "import os, random\nx: os.PathLike\ny: random.Random\nz = random.Random(3)\nreader.read_bytes(2)\nc.open(3)"
    )
    assert list(impurities(tmp_path / "module.py")) == []


# Bans ---------------------------------------------------------------------------------------------


def banned(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of what stands nowhere in the library."""
    for line, name in imports(tree(path)):
        if name.split(".")[0] in BANNED_IMPORTS:
            yield line, name
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Assert):
            yield node.lineno, "assert: use ensure(), which is never switched off"
        elif isinstance(node, ast.Call):
            called = dotted(node.func)
            if called in BANNED_CALLS:
                yield node.lineno, called
            elif called.endswith("import_module") and not isinstance(node.args[0], ast.Constant):
                yield node.lineno, "import of a computed name"


def test_nothing_runs_data_as_code_or_can_be_switched_off() -> None:
    found = {(area(path), what): f"{path}:{line} {what}" for path in sources() for line, what in banned(path)}
    assert [where for key, where in found.items() if key not in BANNED_EXCEPT] == []
    assert set(BANNED_EXCEPT) <= set(found), "an exception that nobody needs"


# Shape --------------------------------------------------------------------------------------------


def test_every_module_says_what_it_is_for() -> None:
    assert [str(path) for path in sources() if not ast.get_docstring(tree(path))] == []


def test_every_source_module_has_its_test_module() -> None:
    """`__init__.py` is prose and names; every other module is mirrored, or stands in the table with a reason."""
    modules = {path.relative_to(PACKAGE) for path in sources() if path.name not in ("__init__.py", "__main__.py")}
    missing = {str(m) for m in modules if not (ROOT / "tests" / m.with_name(f"test_{m.name}")).exists()}

    exempt = {pattern: set(fnmatch.filter(missing, pattern)) for pattern in NO_TEST_MODULE}
    assert sorted(missing.difference(*exempt.values())) == []
    assert [pattern for pattern, modules in exempt.items() if not modules] == [], "an exemption that nobody needs"


# Traces -------------------------------------------------------------------------------------------

# Written in parts, so that this file does not find itself.
HOSTS: Final = ["pypi" + ".org", "python" + "hosted.org", "npm" + "js.org", "repo1.maven" + ".org", "gh" + "cr.io"]
TRACES: Final = re.compile(
    "|".join(
        [*map(re.escape, HOSTS), r"(?<![\w.])/wo" + r"rk/", r"\.\./sha" + "red", r"\.lib" + "rary", r"/ro" + "ot/"]
    )
)
NOT_OURS: Final = {
    ".git",
    ".venv",
    "_build",
    "build",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
}


def test_no_file_names_a_registry_host_or_the_place_where_it_was_written() -> None:
    found = []
    for path in files(ROOT):
        text = path.read_bytes().decode("utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in TRACES.finditer(text)]
    assert found == []


def files(directory: Path) -> Iterator[Path]:
    for path in directory.iterdir():
        if path.name not in NOT_OURS:
            yield from files(path) if path.is_dir() else [path]
