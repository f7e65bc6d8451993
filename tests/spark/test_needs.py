"""What is missing is said in one line, with the remedy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kraftlib.errors import ConfigError
from kraftlib.spark.needs import MODULES, check_java, check_worker, java_version, missing_in


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_no_java_a_wrong_home_and_one_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="none is on the PATH"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match=r"JAVA_HOME=.*gone has no bin/java: name the directory"):
        check_java()
    java = script(tmp_path / "java", """echo 'openjdk version "17.0.15" 2025-04-15' >&2""")
    with pytest.raises(ConfigError, match=r"unset it, since .*/java is on the PATH"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    check_java()
    assert java_version(str(java)) == 17
    script(tmp_path / "old" / "bin" / "java", """echo 'java version "1.8.0_402"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(ConfigError, match="old/bin/java, from JAVA_HOME, is Java 8"):
        check_java()


def test_the_version_of_a_java_is_read_from_its_release_file_without_a_start(tmp_path: Path) -> None:
    java = script(tmp_path / "jdk" / "bin" / "java", "exit 1")
    (tmp_path / "jdk" / "release").write_text(
        'IMPLEMENTOR="Some"\nJAVA_RUNTIME_VERSION="21+35"\nJAVA_VERSION="21.0.2"\n'
    )
    assert java_version(str(java)) == 21


def test_workers_of_another_python_are_named_with_the_remedy(tmp_path: Path) -> None:
    check_worker(sys.executable)
    bare = script(tmp_path / "python3", f'exec {sys.executable} -S -I "$@"')
    assert missing_in(str(bare)) == MODULES
    with pytest.raises(ConfigError, match=f"has no attrs, .*: set PYSPARK_PYTHON={sys.executable} before") as caught:
        check_worker(str(bare))
    assert "\n" not in str(caught.value)
    assert missing_in(str(tmp_path / "none")) == MODULES
