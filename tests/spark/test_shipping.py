"""The archive that is sent is the package itself; who gets it is decided by where the work is done."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kraftlib import spark as kraft
from kraftlib.errors import ConfigError
from kraftlib.spark import shipping
from kraftlib.spark.shipping import archive


def test_the_archive_holds_the_package_and_is_the_same_each_time(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    made = archive(tmp_path)
    names = zipfile.ZipFile(made).namelist()
    sources = {f"kraftlib/{path.relative_to(kraft_root())}" for path in kraft_root().rglob("*.py")}
    assert sources <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    assert archive(tmp_path / "again").read_bytes() == made.read_bytes()


def test_the_package_works_from_the_archive(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(archive(tmp_path))!r})\n"
        "import kraftlib.spark.source, kraftlib.cli, kraftlib.testing.timeline_page\n"
        "from kraftlib.spark.shipping import archive; from pathlib import Path\n"
        "print(kraftlib.__file__, archive(Path('.')).stat().st_size)"
    )
    (tmp_path / "in").mkdir()
    ran = subprocess.run(
        [sys.executable, "-I", "-c", program], cwd=tmp_path / "in", capture_output=True, text=True, check=True
    )
    origin, size = ran.stdout.split()
    assert ".zip" in origin
    assert int(size) == archive(tmp_path).stat().st_size


def kraft_root() -> Path:
    import kraftlib

    return Path(kraftlib.__file__).parent


def test_a_local_session_is_sent_nothing(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(spark.sparkContext), "addPyFile", lambda *words: pytest.fail("nobody needs it"))
    kraft.register(spark)


def test_what_is_no_way_of_shipping_is_refused(spark: Any) -> None:
    with pytest.raises(ConfigError, match="ship='always' must be one of auto, never"):
        kraft.register(spark, ship="always")


def test_executors_of_a_cluster_get_the_archive_once() -> None:
    sent: list[str] = []

    class Context:
        master = "spark://somewhere:7077"

        def addPyFile(self, path: str) -> None:  # noqa: N802 (Spark's name)
            sent.append(path)

    class Session:
        sparkContext = Context()  # noqa: N815 (Spark's name)

    session = Session()
    for ship in ("never", "auto", "auto"):
        assert shipping.ship_to(session, ship=ship)
    assert [Path(path).suffix for path in sent] == [".zip"]
