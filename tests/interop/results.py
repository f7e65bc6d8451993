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
        self._known: dict[str, tuple[str, str, str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep what each test is about: what it says of itself, the release, and its other parameters."""
        for item in session.items:
            parameters = dict(getattr(getattr(item, "callspec", None), "params", {}))
            version = parameters.pop("version", None)
            if version is not None:
                text = " ".join((getattr(item, "function").__doc__ or "").split())  # noqa: B009 - only functions have one
                self._known[item.nodeid] = (text, version, "-".join(map(str, parameters.values())))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep how it ended."""
        known = self._known.get(report.nodeid)
        if known is None or (report.when != "call" and report.outcome == "passed"):
            return
        text, version, case = known
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
