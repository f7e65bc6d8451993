"""Builds the model of the consensus rules with cargo, and runs it: `python dev.py model --help`.

The sources are Rust, with `stateright` from crates.io; what is built lies in `build/model`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
TARGET: Final = HERE.parents[1] / "build" / "model"
OLDEST_CARGO: Final = (1, 75)


def main(arguments: Sequence[str]) -> int:
    """Build and run; the exit status is the model's, or 3 if there is nothing to build it with."""
    reason = lack(cargo_version())
    if reason is not None:
        print(f"dev.py model: {reason}", file=sys.stderr)
        return 3
    build = ["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", str(HERE / "Cargo.toml")]
    status = subprocess.run(build, env={**os.environ, "CARGO_TARGET_DIR": str(TARGET)}, check=False).returncode
    if status:
        print("dev.py model: cargo could not build the model", file=sys.stderr)
        return status
    return subprocess.run([str(TARGET / "release" / "model"), *arguments], check=False).returncode


def cargo_version() -> str | None:
    """Return what cargo says of its version; None if there is none."""
    if shutil.which("cargo") is None:
        return None
    return subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=False).stdout


def lack(version: str | None) -> str | None:
    """Say what is missing; None if nothing is."""
    remedy = "install it: apt install cargo, on Debian 12 apt install cargo-web, or https://rustup.rs"
    if version is None:
        return f"the model is written in Rust and there is no cargo; {remedy}"
    numbers = re.match(r"cargo (\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST_CARGO:
        oldest = ".".join(str(number) for number in OLDEST_CARGO)
        return f"the model needs cargo {oldest} or newer, this is {version.strip()!r}; {remedy}"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
