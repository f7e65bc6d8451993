"""Builds the optional compiled wheel: `KRAFTLIB_COMPILE=1 pip wheel .`, or `dev.py wheel --compiled`.

mypyc, which is part of mypy, compiles the modules below from the very sources that the pure wheel has; a C compiler is
needed. Each extension lies beside its source, and Python prefers it. Without the variable nothing of this happens.

Some modules stay interpreted, so that both forms behave alike:

- those with classes that users may subclass, since a compiled class cannot have interpreted subclasses;
- those that check the arguments of users (`runtime.appends`, `records.accumulator`), and public classes: compiled code
  checks annotations by itself, with other errors;
- those with `raise … from`, since mypyc drops the cause, and those with `attrs.field`, which fails;
- `records.values`: a slice of bytes whose end lies before its start is empty in Python, and a SystemError in mypyc 2.4.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED: Final = (
    "kraftlib.codec.varint",
    "kraftlib.records.batch",
    "kraftlib.storage.log.tail",
    "kraftlib.storage.log.index",
    "kraftlib.storage.log.batches",
    "kraftlib.storage.log.unsynced",
    "kraftlib.storage.log.growing_log",
    "kraftlib.storage.file_log",
    "kraftlib.wire.fetch_template",
    "kraftlib.consensus.fetch_leader",
    "kraftlib.consensus.fetch_follower",
    "kraftlib.consensus.observer_rounds",
    "kraftlib.consensus.poll",
    "kraftlib.consensus.deadlines",
    "kraftlib.consensus.replica",
    "kraftlib.consensus.responses",
    "kraftlib.consensus.received",
    "kraftlib.runtime.waiters",
    "kraftlib.runtime.offset_waiters",
    "kraftlib.runtime.executor",
    "kraftlib.runtime.performer",
    "kraftlib.runtime.router",
    "kraftlib.runtime.alarm",
    "kraftlib.runtime.metrics",
    "kraftlib.runtime.net.framing",
    "kraftlib.runtime.net.answer_queue",
    "kraftlib.runtime.net.network",
    "kraftlib.runtime.net.receiver",
    "kraftlib.runtime.net.request_server",
    "kraftlib.runtime.net.tcp_connection",
    "kraftlib.runtime.net.tcp_client",
    "kraftlib.runtime.net.tcp_server",
    "kraftlib.runtime.net.hot_loops",
)
"""The modules on the path of a commit."""

TOOLS: Final = ("mypy>=1.18,<2.5", "setuptools>=68")
SHARED: Final = "kraftlib"
"""Names the one library that all extensions share: `kraftlib__mypyc`."""


def is_asked_for() -> bool:
    """Whether the environment asks for a compiled wheel."""
    return os.environ.get("KRAFTLIB_COMPILE", "0") not in ("", "0")


class CompiledModules(BuildHookInterface[Any]):
    """Adds the extensions to a wheel if they are asked for."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what the build needs beyond hatchling: mypy reads the types of our own dependencies, too."""
        return [*TOOLS, *self.metadata.core.dependencies] if is_asked_for() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell the builder of the extensions. An editable install has none: they would hide sources."""
        if version == "editable" or not is_asked_for():
            return
        self._directory = tempfile.TemporaryDirectory(prefix="kraftlib-compiled-")
        directory = Path(self._directory.name)
        with contextlib.chdir(self.root):
            build(directory)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for path in directory.glob("wheel/**/*.*"):
            build_data["force_include"][str(path)] = str(path.relative_to(directory / "wheel"))


def build(directory: Path) -> None:
    """Compile all modules; the extensions are then below `wheel` in the directory, each in its place."""
    from mypyc.build import mypycify  # not at the top: a pure wheel is built without mypy and setuptools
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    paths = [f"{name.replace('.', '/')}.py" for name in COMPILED]
    extensions = mypycify(
        ["--config-file", "pyproject.toml", "--cache-dir", str(directory / "cache"), *paths],
        opt_level="1",
        debug_level="0",
        multi_file=True,
        group_name=SHARED,
        target_dir=str(directory / "c"),
    )
    for extension in extensions:  # compilers differ in what they warn of in generated code
        extension.extra_compile_args = [each for each in extension.extra_compile_args if each != "-Werror"]

    class InParallel(build_ext):
        """Compiles several files of a library at a time; setuptools alone has only libraries at a time."""

        def build_extensions(self) -> None:
            compile_some = self.compiler.compile

            def compile_all(sources: list[str], **options: Any) -> list[str]:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    made = pool.map(lambda source: compile_some([source], **options), sources)
                    return [*chain.from_iterable(made)]

            self.compiler.compile = compile_all
            super().build_extensions()

    command = InParallel(Distribution({"name": SHARED, "ext_modules": extensions}))
    command.build_lib = str(directory / "wheel")
    command.build_temp = str(directory / "objects")
    command.ensure_finalized()
    command.run()
