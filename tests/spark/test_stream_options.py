"""The options of a stream: what is misspelt, or does not go together, is told before anything is read."""

from __future__ import annotations

import pytest

from kraftlib.errors import ConfigError
from kraftlib.spark.stream_options import parse_stream_options, without_stream_options
from kraftlib.types import Endpoint


def test_names_have_no_case_and_values_have_their_meaning() -> None:
    asked = parse_stream_options(
        {"path": "/a", "MAXRECORDSPERTRIGGER": "5", "ongap": "Snapshot", "bootstrap": "a:1,b:2", "patiencems": "1500"},
        ("offset", "key"),
    )

    assert (asked.max_records, asked.snapshots, asked.patience_s) == (5, True, 1.5)
    assert asked.servers == (Endpoint("a", 1), Endpoint("b", 2))
    assert (asked.reading.path, asked.reading.columns) == ("/a", ("offset", "key"))


def test_the_columns_follow_from_the_other_options() -> None:
    assert without_stream_options({"path": "/a", "onGap": "snapshot", "maxbytespertrigger": "1"}) == {"path": "/a"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startOffset": "5"}, "a stream goes on from where its checkpoint says"),
        ({"maxBytesPerTriger": "5"}, "'maxBytesPerTrigger', of a stream"),
        ({"maxRecordsPerTrigger": "0"}, "above 0"),
        ({"onGap": "skip"}, "onGap='skip' must be one of fail, snapshot"),
        ({"view": "batches"}, "view=records"),
        ({"clusterId": "x"}, "clusterId goes with bootstrap"),
        ({"bootstrap": "nowhere"}, "'nowhere' is no endpoint"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_stream_options({"path": "/tmp", **options})
