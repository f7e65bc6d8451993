"""Tests against real Kafka: `python3 dev.py interop` runs them, and the plain run says that it does not.

They need a JDK, Maven, 60 MB a release and minutes, so `KRAFTLIB_INTEROP` asks for them: `1` for the short form, `long`
for every test on every release. `KRAFTLIB_KAFKA` names the releases, the most interesting one first.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Generator, Iterator
from operator import ge, le
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.kafka import Release
from tests.interop.lab import Lab
from tests.interop.results import Results
from tests.simulation.ledger import code_now

FORM: Final = os.environ.get("KRAFTLIB_INTEROP", "")
RELEASES: Final = tuple(os.environ.get("KRAFTLIB_KAFKA", "4.3.1,3.9.2").split(","))
HERE: Final = Path(__file__).parent
CODE: Final = code_now() if FORM else ""
CASE: Final = pytest.StashKey[int]()
"""The place of an item among the cases of its test on its release."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "each_release: runs on every release, not only on the first one")
    config.addinivalue_line("markers", "sampled(n): of its cases on a release the short form runs one in n")
    config.addinivalue_line("markers", "since(release): needs this release of Kafka or a later one")
    config.addinivalue_line("markers", "until(release): needs this release of Kafka or an earlier one")
    if FORM:
        config.pluginmanager.register(Results(config), "interop-results")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have a test run against the first release; against all, if it is marked so or in the long form."""
    if "version" not in metafunc.fixturenames:
        return
    markers = {marker.name: marker for marker in metafunc.definition.iter_markers()}
    everywhere = FORM == "long" or not {"each_release", "until"}.isdisjoint(markers)
    versions = RELEASES if everywhere else RELEASES[:1]
    for name, fits in (("since", ge), ("until", le)):
        if name in markers:
            bound = numbers(markers[name].args[0])
            versions = tuple(version for version in versions if fits(numbers(version)[:2], bound))
    metafunc.parametrize("version", versions, scope="session")


def numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Number the cases of each test, before `--last-failed` takes some of them away."""
    made = yield
    if isinstance(made, list):
        number_cases(made)
    return made


def number_cases(items: list[pytest.Item]) -> None:
    """Give each of the items of one test its `CASE`."""
    numbers: Counter[object] = Counter()
    for item in items:
        version = getattr(item, "callspec").params.get("version") if hasattr(item, "callspec") else None  # noqa: B009
        item.stash[CASE] = numbers[version]
        numbers[version] += 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what was not asked for; `N deselected` in the summary counts it."""
    wanted, left_out = [], []
    for item in items:
        real = item.path.is_relative_to(HERE) and "version" in getattr(item, "fixturenames", ())
        if real and (not FORM or not is_for_some_release(item) or (FORM != "long" and is_for_the_long_form(item))):
            left_out.append(item)
        else:
            wanted.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = wanted


def is_for_some_release(item: pytest.Item) -> bool:
    """Whether its marks leave one of the releases; pytest makes an item without a value where they do not."""
    return getattr(item, "callspec").params["version"] in RELEASES  # noqa: B009 - only parametrized items have one


def is_for_the_long_form(item: pytest.Item) -> bool:
    """Whether the short form leaves this out.

    Of sampled cases each release gets others, and of older releases every third test is run. The code decides
    which, so that all of them come round, and a second run of one commit is the same run. The other items that were
    collected do not matter: `--last-failed` collects only what failed.
    """
    version = getattr(item, "callspec").params["version"]  # noqa: B009 - only parametrized items have one
    name = getattr(item, "originalname", item.name)
    sampled = item.get_closest_marker("sampled")
    if sampled is None:
        return item.get_closest_marker("slow") is not None or (version != RELEASES[0] and drawn(item.name, 3) > 0)
    return (item.stash[CASE] - drawn(name, sampled.args[0]) - RELEASES.index(version)) % sampled.args[0] != 0


def drawn(name: str, count: int) -> int:
    """Return a number below `count` that follows from the code and from this name."""
    return random.Random(f"{CODE} {name}").randrange(count)


@pytest.fixture(scope="session")
def release(version: str, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release of Kafka; its jars are fetched when a command line is first asked for."""
    return Release(version, tmp_path_factory.mktemp("kafka"))


@pytest.fixture
def lab(release: Release, tmp_path: Path) -> Iterator[Lab]:
    """A place to start processes in, all of which end with the test."""
    lab = Lab(release, tmp_path)
    try:
        yield lab
    finally:
        lab.close()
