from __future__ import annotations

import subprocess
import sys

import pytest

from kraftlib.metadata import RECORDS, RecordType, record_class, record_type_name
from tests import schema_twin


def test_every_record_type_has_its_class_and_the_name_that_kafka_prints() -> None:
    assert {key: record_type_name(cls) for key, cls in RECORDS.items()} == {t.value: t.name for t in RecordType}
    assert all((cls.api_key, cls.kind) == (key, "metadata") for key, cls in RECORDS.items())


def test_the_table_holds_all_records_of_the_released_schemas() -> None:
    for release in ("kafka-4.4.0", "kafka-4.3.1", "kafka-3.9.2"):
        released = {s["apiKey"]: s["name"] for s in schema_twin.schemas(release).values() if s["type"] == "metadata"}
        assert released.items() <= {key: cls.__name__ for key, cls in RECORDS.items()}.items()


@pytest.mark.parametrize("api_key", [-1, 6, 13, 16, 30, 2**31])
def test_an_unused_number_has_no_class(api_key: int) -> None:
    assert record_class(api_key) is None
    with pytest.raises(KeyError):
        RECORDS[api_key]


def test_records_are_not_imported_before_they_are_met() -> None:
    code = (
        "import sys, kraftlib.metadata as m\n"
        "loaded = lambda: {n for n in sys.modules if n.endswith('_records')}\n"
        "assert not loaded(), loaded()\n"
        "m.decode_record(bytes.fromhex('01140000'))\n"
        "assert loaded() == {'kraftlib.metadata.log_records'}, loaded()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
