"""The module that Spark finds by its name: in a wheel this file is `pyspark_kraft`, beside kraftlib.

Before the first Python data source is used Spark imports every top-level module whose name begins with `pyspark_`, and
takes the class `DefaultSource` of each. If one of them raises, Spark goes on without any, other people's among them. So
nothing is raised here: where something is missing or broken the format is there all the same, and says so when used.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSource


class Unusable(DataSource):
    """Stands for the format where it cannot be imported."""

    reason = ""

    def __init__(self, options: Mapping[str, str]) -> None:
        raise ImportError(f"the format kraft needs what kraftlib[spark] installs: {self.reason}")

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kraft"


try:
    from kraftlib.spark.source import KraftDataSource

    DefaultSource: type[DataSource] = KraftDataSource
except Exception as error:  # noqa: BLE001 - what a broken package raises at its import may be anything
    Unusable.reason = f"{type(error).__name__}: {error}"
    DefaultSource = Unusable
