"""What holds for every test: hypothesis without deadlines, and no silent skips."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

ALLOWED_SKIPS: Final[dict[str, str]] = {}
"""Start of a test's id -> why it may be skipped where everything must run (CI=true)."""

# A deadline would be a timing assert. `dev.py test --all` takes the examples of "all", and so does CI;
# `pytest --hypothesis-profile=long` searches for longer.
for profile, examples in (("short", 25), ("all", 50), ("long", 5_000)):
    hypothesis.settings.register_profile(profile, deadline=None, max_examples=examples, print_blob=True)
hypothesis.settings.load_profile("short")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    return skip_is_failure(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    return skip_is_failure(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what this run leaves to another one."""
    if not os.environ.get("KRAFTLIB_INTEROP"):
        terminalreporter.write_sep("-", "tests/interop NOT RUN: nothing was tried against real Kafka", yellow=True)
        terminalreporter.write_line("`python3 dev.py interop` runs it; it needs a JDK and Maven, and takes minutes")


def skip_is_failure(report: Any) -> Any:
    """Turn a skip into a failure under CI=true. What is skipped there is not known to work anywhere."""
    expected_to_fail = hasattr(report, "wasxfail")
    allowed = any(report.nodeid.startswith(start) for start in ALLOWED_SKIPS)
    if os.environ.get("CI") == "true" and report.outcome == "skipped" and not expected_to_fail and not allowed:
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped, and under CI=true nothing is: {report.longrepr}"
    return report
