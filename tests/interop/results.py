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

RESULTS: Final = Path(__file__).resolve().parents[2] / "build" / "interop.json"


class Results:
    """Gathers the outcome of each test."""

    def __init__(self, config: pytest.Config) -> None:
        self.rows: list[dict[str, Any]] = []
        self._said: dict[str, str] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep what each test says of itself."""
        for item in session.items:
            document = getattr(getattr(item, "function", None), "__doc__", None) or ""
            self._said[item.nodeid] = " ".join(document.split())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep how it ended."""
        if "[" not in report.nodeid or (report.when != "call" and report.outcome == "passed"):
            return
        module, _, name = report.nodeid.partition("::")
        test, _, parameters = name.rstrip("]").partition("[")
        self.rows.append(
            {
                "area": Path(module).stem.removeprefix("test_"),
                "test": test.removeprefix("test_").replace("_", " "),
                "text": self._said.get(report.nodeid, ""),
                "release": parameters.partition("-")[0],
                "case": parameters.partition("-")[2],
                "outcome": report.outcome,
                "seconds": round(report.duration, 1),
                "figures": dict(report.user_properties),
            }
        )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write all of it."""
        if not self.rows:
            return
        RESULTS.parent.mkdir(exist_ok=True)
        java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
        found = {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "kraftlib": kraftlib.__version__,
            "java": java.splitlines()[0] if java else "",
            "cpus": os.cpu_count(),
            "form": os.environ.get("KRAFTLIB_INTEROP", ""),
            "rows": self.rows,
        }
        RESULTS.write_text(json.dumps(found, indent=1))
