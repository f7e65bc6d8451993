"""The rule of tests/conftest.py: what is skipped in CI is not known to work anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")

SKIPS = {
    "in the test": "import pytest\ndef test_it(): pytest.skip('no reason')\n",
    "by a mark": "import pytest\n@pytest.mark.skip(reason='none')\ndef test_it(): pass\n",
    "of the module": "import pytest\npytest.skip('no reason', allow_module_level=True)\n",
}


@pytest.mark.parametrize("text", SKIPS.values(), ids=SKIPS.keys())
def test_a_skip_fails_under_ci_and_only_there(text: str, tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(text)
    (tmp_path / "conftest.py").write_bytes(CONFTEST.read_bytes())

    assert run_pytest(tmp_path, ci="true") in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert run_pytest(tmp_path, ci="") in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def run_pytest(directory: Path, *, ci: str) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", directory, directory]
    environment = {**os.environ, "CI": ci, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, check=False, timeout=60
    ).returncode
