"""The history of one thing of a Kafka cluster, on Spark: executors find the records about it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kraftlib.analysis.entities import nothing_about, option_text, parse_entity, wanted_entities
from kraftlib.analysis.history import COLUMNS, HISTORY, leader_in
from kraftlib.analysis.options import pin_text
from kraftlib.analysis.reading import options_of
from kraftlib.analysis.replicas import check_one_log
from kraftlib.analysis.splits import pin
from kraftlib.spark.tables import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def history(spark: SparkSession, path: str | os.PathLike[str], what: str, **options: object) -> DataFrame:
    """Return the changes of `what` (as `topic:events`) as a DataFrame; the answer of `kraftlib.analysis.history`.

    Raises: ConfigError, if `what` names no kind of thing, or nothing that is in the log; and for several replicas.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    asked = parse_entity(what)
    check_one_log(options_of(path, **options))
    common = {**options, "pin": pin_text(pin(options_of(path, **options)))}
    topics = read(spark, path, **{**common, "decode": "TopicRecord", "columns": "record"})
    named = [(row.name, row.topicId) for row in topics.select("record.name", "record.topicId").collect()]
    wanted = wanted_entities(asked, named)

    given = {**common, "columns": COLUMNS, "decode": "json", "about": option_text(wanted)}
    found = read(spark, path, **given)
    if found.isEmpty():
        raise nothing_about(asked, os.fspath(path), named)
    controls = read(spark, path, **{**common, "columns": "epoch,control_type,value"})
    changes_of_leader = controls.where("control_type = 'leader_change'").select("epoch", "value").collect()
    leaders = [(row.epoch, leader_in(row.value)) for row in changes_of_leader]
    by_epoch = spark.createDataFrame(leaders, "epoch int, leader int")
    ordered = found.join(f.broadcast(by_epoch), "epoch", "left").withColumn(
        # One thing has few changes: they fit one task.
        "previous_offset",
        f.lag("offset").over(Window.orderBy("offset")),
    )
    return ordered.select(*HISTORY.names).orderBy("offset")
