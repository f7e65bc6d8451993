"""What a run against real Kafka has shown, as JSON: the page "Compatibility" is made of it (`tests.interop.page`).

A test adds its figures with pytest's `record_property`.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

import kraftlib

ABOUT: Final = "interop: what it is about"
"""Name of the property that carries what a row says besides the outcome."""

RESULTS: Final = Path(__file__).resolve().parents[2] / "build" / "interop.json"


class Results:
    """Gathers the outcome of each test, also from the workers of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self.rows: list[dict[str, Any]] = []
        self._is_worker = hasattr(config, "workerinput")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Attach to each test what it is about: what it says of itself, the release, and its other parameters."""
        for item in session.items:
            parameters = dict(getattr(getattr(item, "callspec", None), "params", {}))
            version = parameters.pop("version", None)
            if version is not None:
                text = " ".join((getattr(item, "function").__doc__ or "").split())  # noqa: B009 - only functions have one
                item.user_properties.append((ABOUT, (text, version, "-".join(map(str, parameters.values())))))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep how it ended."""
        figures = dict(report.user_properties)
        about = figures.pop(ABOUT, None)
        if about is None or (report.when != "call" and report.outcome == "passed"):
            return
        text, version, case = about
        module, _, name = report.nodeid.partition("::")
        self.rows.append(
            {
                "area": Path(module).stem.removeprefix("test_"),
                "test": name.partition("[")[0].removeprefix("test_").replace("_", " "),
                "text": text,
                "release": version,
                "case": case,
                "outcome": report.outcome,
                "seconds": round(report.duration, 1),
                "figures": figures,
                "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            }
        )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write all of it, and keep what earlier runs have shown of other tests."""
        if not self.rows or self._is_worker:
            return
        skipped = [row["test"] for row in self.rows if row["outcome"] == "skipped"]
        if skipped and os.environ.get("CI"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            print(f"\nin CI a skip is an error: {', '.join(skipped)}")
        RESULTS.parent.mkdir(exist_ok=True)
        java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
        earlier = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
        found = {
            "kraftlib": kraftlib.__version__,
            "java": java.splitlines()[0] if java else "",
            "cpus": os.cpu_count(),
            "rows": merged(earlier, self.rows),
        }
        RESULTS.write_text(json.dumps(found, indent=1))


def merged(earlier: list[dict[str, Any]], later: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return all rows, of one test, release and case the later one."""
    rows = {(row["area"], row["test"], row["release"], row["case"]): row for row in [*earlier, *later]}
    return list(rows.values())
