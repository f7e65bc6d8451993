"""Kafka Streams on controllers of ours: its own word count, beside a count of the same text in Python."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Final

import pytest

from tests.interop.clusters import Cluster
from tests.interop.jars import streams
from tests.interop.kafka import CONSUMER
from tests.interop.lab import Lab
from tests.interop.processes import Process, wait_for
from tests.interop.test_havoc import Record

WORD_COUNT: Final = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
INPUT: Final = "streams-plaintext-input"
OUTPUT: Final = "streams-wordcount-output"
LINES: Final = 200
WORDS: Final = ("To be,", "or NOT", "to be:", "that is", "the question", "whether 'tis", "nobler in", "the mind")
LONGS: Final = "org.apache.kafka.common.serialization.LongDeserializer"


class WordCount(Process):
    """Kafka's example of Streams, exactly once."""

    def __init__(self, cluster: Cluster, **properties: object) -> None:
        lab = cluster.lab
        given = {
            "bootstrap.servers": cluster.bootstrap,
            "state.dir": lab.home / "streams",
            "processing.guarantee": "exactly_once_v2",
            "num.stream.threads": 2,
            **properties,
        }
        path = lab.home / "streams.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        release = lab.release.of_tools
        jars = streams(release.version) / "*"
        command = release.java(WORD_COUNT, path, heap_mb=128, level="WARN", classes=jars)
        super().__init__(command, log=lab.home / "streams.log")


def counted(cluster: Cluster) -> tuple[Counter[str], int]:
    """Return the last count of each word that Streams has committed, and how many counts there are."""
    words = ["--topic", OUTPUT, "--from-beginning", "--timeout-ms", 2_000, "--isolation-level", "read_committed"]
    words += ["--property", "print.key=true", "--property", f"value.deserializer={LONGS}"]
    out = cluster.lab.tools.run(CONSUMER, "--bootstrap-server", cluster.bootstrap, *words).out
    rows = [line.split("\t") for line in out.splitlines() if "\t" in line]
    return Counter({word: int(count) for word, count in rows}), len(rows)


def word_count(lab: Lab, **properties: object) -> int:
    """Have Streams count a text while the active controller is killed; check it, and return how many words it has."""
    cluster = Cluster(lab, controllers=3)
    cluster.start_brokers()
    for topic in (INPUT, OUTPUT):
        cluster.topics("--create", "--topic", topic, "--partitions", 2)
    chance = random.Random(1)
    text = [" ".join(chance.choices(WORDS, k=5)) for _ in range(LINES)]
    expected = Counter(word for line in text for word in re.findall(r"\w+", line.lower()))
    app = WordCount(cluster, **properties)
    lab.keep(app)
    app.start()
    cluster.produce(INPUT, text[: LINES // 2])
    wait_for("the first counts", lambda: counted(cluster)[1] > 0)
    killed = cluster.active()
    cluster.controllers[killed].kill()
    cluster.active(but=killed)
    cluster.controllers[killed].start()
    cluster.produce(INPUT, text[LINES // 2 :])
    wait_for("all counts", lambda: counted(cluster)[1] >= expected.total())
    app.stop()
    found, rows = counted(cluster)
    assert found == expected
    assert rows == expected.total()  # one count for each word of the text: none is lost, or there twice
    topics = cluster.topics("--list").out.split()
    assert len([name for name in topics if name.startswith("streams-wordcount-") and name != OUTPUT]) == 2, topics
    assert cluster.broker.stop() == 143
    assert cluster.broker.complaints() == []
    return expected.total()


# The examples of 3.9.2 were never published.
@pytest.mark.since("4.3")
def test_the_word_count_of_streams_agrees_with_a_count_in_python(lab: Lab, record_property: Record) -> None:
    """Exactly once, with a repartition topic and a changelog that Streams creates; the active controller is killed."""
    record_property("words", word_count(lab))


@pytest.mark.slow
@pytest.mark.since("4.3")
def test_the_word_count_agrees_with_the_groups_of_kip_1071(lab: Lab, record_property: Record) -> None:
    """The same with `group.protocol=streams`: the group's coordinator creates the topics."""
    record_property("words", word_count(lab, **{"group.protocol": "streams"}))
