"""Checks of Java and of the workers' Python, made before Spark fails on them with pages that name no remedy."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Final

from kraftlib.errors import ConfigError

JAVA_MIN: Final = 17
MODULES: Final = ("attrs", "crc32c", "lz4", "numpy", "pyarrow", "zstandard")
"""The packages that a worker imports; most of them are compiled, so they cannot be sent along."""

_ANSWER_S: Final = 60.0
_VERSION: Final = re.compile(r'(?:version |^JAVA_VERSION=)"(?:1\.)?([0-9]+)', re.MULTILINE)
_PROBE: Final = "import sys, importlib.util as u; print(*[m for m in sys.argv[1:] if u.find_spec(m) is None])"


def check_java() -> None:
    """Check that Spark will find a Java that is new enough. Raises: ConfigError that says where one was looked for."""
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    if home and not (Path(home) / "bin" / "java").exists():
        instead = f"unset it, since {on_path} is on the PATH" if on_path else "name the directory of a Java 17 or newer"
        raise ConfigError(f"JAVA_HOME={home} has no bin/java: {instead}")
    java = str(Path(home) / "bin" / "java") if home else on_path
    if java is None:
        raise ConfigError(
            f"Spark needs Java 17 or newer: none is on the PATH and JAVA_HOME is {home!r}; on Debian and Ubuntu:"
            " apt install openjdk-17-jre-headless"
        )
    major = java_version(java)
    if major is not None and major < JAVA_MIN:
        where = "JAVA_HOME" if home else "the PATH"
        raise ConfigError(f"Spark needs Java {JAVA_MIN} or newer: {java}, from {where}, is Java {major}")


@lru_cache(maxsize=8)
def java_version(java: str) -> int | None:
    """Return the major version of a Java, 8 for `1.8.0`; None, if it does not say.

    The file `release` of its directory says it, without the start of a JVM; if there is none, the JVM is asked.
    """
    with contextlib.suppress(OSError, UnicodeDecodeError):
        match = _VERSION.search((Path(java).resolve().parent.parent / "release").read_text(encoding="utf-8"))
        if match is not None:
            return int(match[1])
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return None if match is None else int(match[1])


def check_worker(python: str) -> None:
    """Check that the Python of a local session's workers has what they import. Raises: ConfigError with the remedy."""
    missing = () if shutil.which(python) == sys.executable else missing_in(python)
    if missing:
        raise ConfigError(
            f"the workers of this session run {shutil.which(python) or python}, which has no {', '.join(missing)}: set"
            f" PYSPARK_PYTHON={sys.executable} before the session is made, or make it with kraftlib.spark.session()"
        )


@lru_cache(maxsize=8)
def missing_in(python: str) -> tuple[str, ...]:
    """Return the modules of MODULES that a Python lacks; all of them, if it does not run."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE, *MODULES], capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return MODULES
    return tuple(done.stdout.split()) if done.returncode == 0 else MODULES
