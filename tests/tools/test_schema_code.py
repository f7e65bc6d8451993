from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from kraftlib.codec.declarations import Message
from tests.schema_twin import DATA
from tools import schemas


def test_code_written_from_the_schemas_declares_the_schemas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = DATA / "kafka-4.3.1" / "schemas.json"
    released = [s for s in json.loads(path.read_text("utf-8")) if s["name"] not in schemas.NOT_DECLARED]
    assert schemas.main(["write", str(path), "--message", *(schema["name"] for schema in released)]) == 0
    module_path = tmp_path / "written.py"
    module_path.write_text(capsys.readouterr().out, "utf-8")

    specification = importlib.util.spec_from_file_location("written", module_path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)

    for schema in released:
        written: type[Message] = getattr(module, schema["name"])
        assert schemas.difference(schemas.schema_from_json(schema), schemas.schema_from_class(written)) == []
    # UnalignedRecords is null by default in Kafka, though it may not be: ours is empty, so that it can be sent.
    assert module.FetchSnapshotResponse.PartitionSnapshot().unaligned_records == b""
