"""Ships kraftlib to executors that lack it, as an archive of the package that the driver runs, so of its version.

A stream through Spark Connect needs kraftlib installed at the server: in PySpark 4.3 the process that plans streams
there does not get what the client uploads.

The dependencies of kraftlib (attrs, crc32c, lz4, zstandard, numpy, pyarrow) cannot be shipped this way, since most of
them are compiled: they must be installed where the executors run.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from kraftlib import __version__
from kraftlib.errors import ConfigError
from kraftlib.spark.needs import check_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHIP: Final = ("auto", "never")
_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)
_NO_PATH: Final = "there is no path"
"""The error of the format when it is given no path."""


_contexts: Final[WeakSet[Any]] = WeakSet()
"""The contexts that have the archive."""


def archive(directory: Path) -> Path:
    """Write this kraftlib as a zip into `directory`, the same bytes each time; return its path.

    It is what `spark-submit --py-files` and `addArtifacts(…, pyfile=True)` take. A wheel, by contrast, is seen by
    executors but not by the planner.
    """
    path = directory / f"kraftlib-{__version__}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in sorted(_members(files("kraftlib"), "kraftlib")):
            made.writestr(zipfile.ZipInfo(name, _EARLIEST), data, zipfile.ZIP_DEFLATED)
    return path


def ship_to(spark: SparkSession, *, ship: str) -> bool:
    """Give kraftlib to the executors of a session that need it; return whether the format must be registered there.

    Raises: ConfigError, if `ship` is neither auto nor never.
    """
    if ship not in SHIP:
        raise ConfigError(f"ship={ship!r} must be one of {', '.join(SHIP)}")
    if is_connect(spark):
        if ship == "never":
            return True
        if knows_format(spark):
            return False
        spark.addArtifacts(str(_shipped()), pyfile=True)
        return True
    context = spark.sparkContext
    if _is_local(context.master):
        check_worker(context.pythonExec)
    came_along = not Path(__file__).is_file()  # by --py-files: executors have it from there
    if ship == "auto" and not came_along and not _is_local(context.master) and context not in _contexts:
        context.addPyFile(str(_shipped()))
        _contexts.add(context)
    return True


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, whose planners and executors are elsewhere."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def knows_format(spark: SparkSession) -> bool:
    """Whether a server of Spark Connect has the format: kraftlib is installed there, or was registered before."""
    from pyspark.errors import PySparkException

    try:
        _ = spark.read.format("kraft").load().schema
    except PySparkException as error:
        return _NO_PATH in str(error)
    return True


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _members(place: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for one in place.iterdir():
        inner = f"{name}/{one.name}"
        if one.is_dir():
            if one.name != "__pycache__":
                yield from _members(one, inner)
        elif not one.name.endswith((".so", ".pyd")):  # Python imports no extensions from a zip
            yield inner, one.read_bytes()


@cache
def _shipped() -> Path:
    """Return the archive, made once a process: Spark serves it from there, as long as the session lasts."""
    directory = Path(tempfile.mkdtemp(prefix="kraftlib-archive-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return archive(directory)
