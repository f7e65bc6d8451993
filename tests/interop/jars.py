"""Kafka's published jars in a cache directory: fetched by name with Maven, once a release.

    python -m tests.interop.jars 4.3.1 3.9.2        fetch what is missing, and print where it is

The cache is `KRAFTLIB_CACHE`, or `~/.cache/kraftlib`; a release takes 60 MB there, and Kafka Streams, which is fetched
when a test first asks for it, as much again. What is needed beside Python, a
JDK from 17 on and Maven, is asked for by name where it is missing. On Debian and Ubuntu it is installed, as root or
with sudo, in CI (`CI` is set) and where `KRAFTLIB_INSTALL` allows it.
Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

POM: Final = Path(__file__).with_name("pom.xml")
TOOLS_OF: Final = {"4.4.0": "4.3.1"}
"""Releases whose tools were never published, and whose are run in their place."""

STREAMS: Final = ("kafka-streams", "kafka-streams-examples", "rocksdbjni")
"""What Kafka Streams needs beside the jars of a release."""

OLDEST_JAVA: Final = 17
PACKAGES: Final = ("openjdk-17-jdk-headless", "maven")
FETCH_TIMEOUT_S: Final = 600
INSTALL_TIMEOUT_S: Final = 900


class MissingToolsError(Exception):
    """Java or Maven are not there, and cannot be installed from here."""


class FetchError(Exception):
    """Maven did not get the jars."""


def cache() -> Path:
    """Return where jars and compiled classes are kept."""
    home = os.environ.get("KRAFTLIB_CACHE")
    return Path(home) if home else Path.home() / ".cache" / "kraftlib"


def release_directory(version: str) -> Path:
    """Return where a release is kept, fetched or not."""
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", version):
        raise ValueError(f"{version!r} is no release of Kafka: expected a version such as 4.3.1")
    return cache() / f"kafka-{version}"


def libraries(version: str) -> Path:
    """Return the directory with the jars of a release; fetch them if they are not there.

    Raises: MissingToolsError; FetchError, if Maven fails (its output has been shown).
    """
    home = release_directory(version)
    once(home / "libs", lambda place: _fetch(version, place))
    return home / "libs"


def streams(version: str) -> Path:
    """Return the directory with the jars of Kafka Streams and its examples; fetch them likewise."""
    home = release_directory(version)
    once(home / "streams", lambda place: _fetch(version, place, only=STREAMS))
    return home / "streams"


def once(target: Path, make: Callable[[Path], None]) -> None:
    """Have the directory `target` made, whole or not at all; of several processes one does it."""
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir():
            return
        with tempfile.TemporaryDirectory(dir=target.parent) as place:
            made = Path(place) / target.name
            made.mkdir()
            make(made)
            made.rename(target)


def _fetch(version: str, place: Path, only: Sequence[str] = ()) -> None:
    ensure_tools()
    what = "Kafka Streams" if only else "Kafka"
    say(f"fetching the jars of {what} {version} into {place.parent.parent}: once, about 60 MB")
    wanted = {"log4j2": int(version.split(".")[0]) >= 4, "tools": version not in TOOLS_OF, "streams": bool(only)}
    profiles = [f"-P{name}" for name, is_wanted in wanted.items() if is_wanted]
    command = ["mvn", "-q", "-B", "-f", str(POM), f"-Dkafka.version={version}", *profiles]
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={place}"]
    goal += [f"-DincludeArtifactIds={','.join(only)}"] if only else []
    try:
        status = subprocess.run([*command, *goal], check=False, timeout=FETCH_TIMEOUT_S, stdout=sys.stderr).returncode
        trouble = f"exit status {status}, its own words are above" if status else ""
    except subprocess.TimeoutExpired:
        trouble = f"not done within {FETCH_TIMEOUT_S} s"
    looked_for = f"{only[0] if only else 'kafka-raft'}-{version}.jar"
    if not trouble and not (place / looked_for).exists():
        trouble = f"{looked_for} did not come"
    if trouble:
        raise FetchError(
            f"Maven could not fetch the jars of {what} {version}: {trouble}. It needs a repository that has them: the "
            "central one over the network, or a mirror named in ~/.m2/settings.xml. Jars of another machine's cache do "
            f"as well, in {place.parent.parent / place.name}"
        )


def ensure_tools(*, fetching: bool = True) -> None:
    """See that java, javac and, for fetching, mvn are there; install them where we may. Raises: MissingToolsError."""
    missing = missing_tools(fetching=fetching)
    if not missing:
        return
    lacking = f"{', '.join(missing)} missing; the tests against real Kafka need a JDK from {OLDEST_JAVA} on and Maven"
    allowed = os.environ.get("CI") or os.environ.get("KRAFTLIB_INSTALL")
    become_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if not allowed or shutil.which("apt-get") is None or not all(map(shutil.which, become_root[:1])):
        raise MissingToolsError(
            f"{lacking}: on Debian and Ubuntu, apt-get install {' '.join(PACKAGES)}, "
            "or let `python3 dev.py interop --install` do it"
        )
    say(f"{lacking}: installing {' and '.join(PACKAGES)} with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *PACKAGES]):
        done = subprocess.run(
            [*become_root, "apt-get", *command],
            check=False, timeout=INSTALL_TIMEOUT_S, env=environment, stdout=sys.stderr,
        )  # fmt: skip
        if done.returncode:
            raise MissingToolsError(
                f"{lacking}: `apt-get {' '.join(command)}` ended with {done.returncode}, its own words are above; it "
                "needs a package mirror"
            )
    missing = missing_tools(fetching=fetching)
    if missing:
        raise MissingToolsError(f"apt-get installed {' '.join(PACKAGES)}, yet missing is {', '.join(missing)}")


def missing_tools(*, fetching: bool = True) -> list[str]:
    """Return what is not there, or too old."""
    wanted = ["java", "javac", *(["mvn"] if fetching else [])]
    missing = [name for name in wanted if shutil.which(name) is None]
    if "java" not in missing and java_version() < OLDEST_JAVA:
        missing.append(f"Java {OLDEST_JAVA} (`java` is {java_version()})")
    return missing


def java_version() -> int:
    """Return the major version of `java`."""
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True, timeout=60).stderr
    found = re.search(r'version "(?:1\.)?([0-9]+)', told)
    return int(found[1]) if found else 0


def say(text: str) -> None:
    """Tell the person at the terminal what goes on."""
    print(text, file=sys.stderr, flush=True)


def main(versions: Sequence[str]) -> int:
    """Fetch these releases and print where they are."""
    try:
        ensure_tools(fetching=not all((release_directory(version) / "libs").is_dir() for version in versions))
        for version in dict.fromkeys([*versions, *(TOOLS_OF[version] for version in versions if version in TOOLS_OF)]):
            print(f"{version} {libraries(version)}")
    except (MissingToolsError, FetchError, ValueError, OSError, subprocess.SubprocessError) as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
