"""kazoo's own tests, unchanged: those of counters here, those of all recipes with `dev.py kazoo`, which CI runs."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.snippets import ROOT


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.compat.kazoo_suite", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=170)


def test_kazoos_tests_of_a_recipe_pass() -> None:
    done = run("--replicas", "1", "test_counter")
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(
        r"kazoo's tests on kraftlib: (\d+) of (\d+) pass, 0 ask for ZooKeeper itself, 0 are skipped, 0 are wrong",
        done.stdout,
    )
    assert passed is not None
    assert int(passed[1]) == int(passed[2]) >= 5


def test_a_test_that_fails_is_named_with_its_reason() -> None:
    done = run("--replicas", "1", "test_client", "-k", "test_get_acls or test_update_host_list")
    assert done.returncode == 1
    assert "not ours: test_client.py::TestClient::test_get_acls: asks for ACLs" in done.stdout
    assert "WRONG: test_client.py::TestClient::test_update_host_list: AssertionError" in done.stdout, "of one replica"
    assert "1 of 3 pass, 1 ask for ZooKeeper itself, 0 are skipped, 1 are wrong" in done.stdout
