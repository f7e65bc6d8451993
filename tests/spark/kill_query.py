"""A query of Spark over a live quorum, as a process of its own: to be killed at any moment, with its JVM and workers.

What a batch holds goes to a file that has the batch's number, durably. If the file is there already, because the commit
of the batch was lost, it must be the very same.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from kraftlib import spark as kraft
from tests.spark.drill import write

FRUGAL = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def main(home: Path, options: dict[str, str]) -> None:
    """Run batches until killed, or until whoever would kill it is gone."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    spark = kraft.session("local[2]", memory="512m", config=FRUGAL, app_name="kraftlib-kills")
    spark.sparkContext.setLogLevel("ERROR")
    kraft.register(spark)

    def take(frame: Any, number: int) -> None:
        rows = [[row.offset, bytes(row.value).hex()] for row in frame.sort("offset").collect()]
        output = home / "output" / str(number)
        if output.exists() and json.loads(output.read_text()) != rows:
            write(home / "differs", number)
        write(output, rows)

    frame = spark.readStream.format("kraft").options(**options).load().select("offset", "value")
    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(home / "checkpoint")).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
