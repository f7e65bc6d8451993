"""Getting Kafka: what is fetched once, and what is said where it cannot be."""

from __future__ import annotations

import re
import subprocess
import threading
from pathlib import Path

import pytest

from tests.interop import jars


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of one's own."""
    monkeypatch.setenv("KRAFTLIB_CACHE", str(tmp_path))
    return tmp_path


def test_what_is_there_is_not_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_fetch", lambda *_: pytest.fail("fetched again"))
    (cache / "kafka-4.3.1" / "libs").mkdir(parents=True)

    assert jars.libraries("4.3.1") == cache / "kafka-4.3.1" / "libs"


def test_a_fetch_that_fails_leaves_nothing_that_counts_as_done(cache: Path) -> None:
    def break_off(place: Path) -> None:
        (place / "half.jar").touch()
        raise RuntimeError("cut off")

    with pytest.raises(RuntimeError, match="cut off"):
        jars.once(cache / "libs", break_off)
    assert not (cache / "libs").exists()
    jars.once(cache / "libs", lambda place: (place / "whole.jar").touch())
    assert [path.name for path in (cache / "libs").iterdir()] == ["whole.jar"]


def done(status: int) -> subprocess.CompletedProcess[str]:
    """Return how a program has ended."""
    return subprocess.CompletedProcess([], status)


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (done(1), "exit status 1, its own words are above"),
        (done(0), r"kafka-raft-4\.3\.1\.jar did not come"),
        (subprocess.TimeoutExpired("mvn", 1), "not done within"),
    ],
)
def test_where_maven_gets_nothing_it_is_said_what_it_needs(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ending: object, said: str
) -> None:
    def run(command: list[str], **how: object) -> object:
        if isinstance(ending, BaseException):
            raise ending
        return ending

    monkeypatch.setattr(jars, "ensure_tools", lambda **how: None)
    monkeypatch.setattr(jars.subprocess, "run", run)

    assert jars.main(["4.3.1"]) == 1
    told = capsys.readouterr().err
    assert re.search(f"Maven could not fetch the jars of Kafka 4.3.1: {said}", told)
    assert f"Jars of another machine's cache do as well, in {cache / 'kafka-4.3.1' / 'libs'}" in told
    assert not (cache / "kafka-4.3.1" / "libs").exists()


def test_kafka_streams_is_fetched_beside_the_release(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **how: object) -> object:
        (place,) = (Path(word.partition("=")[2]) for word in command if word.startswith("-DoutputDirectory="))
        assert "-Pstreams" in command
        for name in "".join(word for word in command if "includeArtifactIds" in word).partition("=")[2].split(","):
            (place / f"{name}-4.3.1.jar").touch()
        return done(0)

    monkeypatch.setattr(jars, "ensure_tools", lambda **how: None)
    monkeypatch.setattr(jars.subprocess, "run", run)

    assert jars.streams("4.3.1") == cache / "kafka-4.3.1" / "streams"
    assert len(list(jars.streams("4.3.1").iterdir())) == len(jars.STREAMS)
    assert not (cache / "kafka-4.3.1" / "libs").exists()


def test_of_two_at_once_one_does_it(cache: Path) -> None:
    made: list[int] = []
    threads = [
        threading.Thread(target=jars.once, args=(cache / "libs", lambda place, number=number: made.append(number)))
        for number in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len(made) == 1


@pytest.mark.parametrize("name", ["4.3", "latest", "../4.3.1", "4.3.1;x"])
def test_what_is_no_release_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no release of Kafka"):
        jars.libraries(name)


def test_where_nothing_may_be_installed_the_packages_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jars.shutil, "which", lambda name: None)
    monkeypatch.setattr(jars.os, "geteuid", lambda: 1000)
    monkeypatch.setenv("CI", "true")

    assert jars.main(["4.3.1"]) == 1
    said = capsys.readouterr().err
    assert "java, javac, mvn missing" in said
    assert "apt-get install openjdk-17-jdk-headless maven" in said


@pytest.mark.parametrize(
    ("user", "setting", "installed"),
    [(0, "CI", True), (0, "KRAFTLIB_INSTALL", True), (1000, "CI", True), (0, None, False)],
)
def test_what_is_missing_is_installed_in_ci_or_where_it_is_allowed(
    monkeypatch: pytest.MonkeyPatch, user: int, setting: str | None, installed: bool
) -> None:
    ran: list[list[str]] = []
    missing = [["java", "javac", "mvn"], []]
    monkeypatch.setattr(jars, "missing_tools", lambda *, fetching: missing.pop(0))
    monkeypatch.setattr(jars.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(jars.os, "geteuid", lambda: user)
    monkeypatch.setattr(jars.subprocess, "run", lambda command, **how: ran.append(command) or done(0))
    for name in ("CI", "KRAFTLIB_INSTALL"):
        monkeypatch.delenv(name, raising=False)
    if setting:
        monkeypatch.setenv(setting, "1")

    if installed:
        jars.ensure_tools()
        words = ["sudo", "-n"] if user else []
        assert ran[0] == [*words, "apt-get", "update", "-q"]
        assert ran[1][-2:] == list(jars.PACKAGES)
    else:
        with pytest.raises(jars.MissingToolsError, match="interop --install"):
            jars.ensure_tools()
        assert ran == []
