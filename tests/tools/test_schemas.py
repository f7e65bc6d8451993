from __future__ import annotations

import copy
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kraftlib.errors import ConfigError
from tests.schema_twin import DATA
from tools import schemas

NEWEST = DATA / "kafka-4.4.0" / "schemas.json"
COMPLETE = DATA / "kafka-4.3.1" / "schemas.json"
OLDEST = DATA / "kafka-3.9.2" / "schemas.json"


def released() -> dict[str, Any]:
    return {schema["name"]: schema for schema in json.loads(NEWEST.read_text("utf-8"))}


@pytest.mark.parametrize("place", [NEWEST, COMPLETE])
def test_the_declarations_are_the_schemas_of_kafka_4_3_and_4_4(place: Path) -> None:
    assert schemas.differences(schemas.load_schemas(place)) == []


def test_the_declarations_are_the_schemas_of_kafka_3_9_2_but_for_what_is_older_than_kraft() -> None:
    assert schemas.differences(schemas.load_schemas(OLDEST)) == [
        "RequestHeader:",
        "  version 0 is not declared",
        "FetchRequest:",
        "  version 0, 1, 2, 3 is not declared",
        "FetchResponse:",
        "  version 0, 1, 2, 3 is not declared",
    ]


def test_the_names_that_kafka_4_0_changed_are_the_ones_that_we_rename() -> None:
    old = json.dumps(json.loads(OLDEST.read_text("utf-8")))
    for (message, name), renamed in schemas.RENAMED.items():
        assert f'"{name}"' in old
        assert name not in json.dumps(released()[message])
        assert renamed in json.dumps(released()[message])


def test_every_declared_message_is_in_the_newest_release() -> None:
    assert set(schemas.declared_messages()) == set(released()) - set(schemas.NOT_DECLARED)


# What a new release would look like ---------------------------------------------------------------


def changed(name: str, change: Any) -> list[str]:
    schema = copy.deepcopy(released()[name])
    change(schema)
    return schemas.differences([schema])


def partition_of(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema["fields"][-1]["fields"][-1]
    return found


def test_a_new_version_with_a_new_field_is_shown() -> None:
    def change(schema: dict[str, Any]) -> None:
        schema["validVersions"] = "0-3"
        partition_of(schema)["fields"].append({"name": "Haste", "type": "int8", "versions": "3+"})

    assert changed("VoteRequest", change) == ["VoteRequest:", "  version 3 is not declared"]


def test_a_change_of_a_version_that_we_know_is_shown_field_by_field() -> None:
    def change(schema: dict[str, Any]) -> None:
        partition_of(schema)["fields"][1]["type"] = "int64"
        partition_of(schema)["fields"].append({"name": "Haste", "type": "int8", "versions": "1+", "default": "3"})

    assert changed("VoteRequest", change) == [
        "VoteRequest:",
        "  in version 0:",
        "  - Topics.Partitions.ReplicaEpoch int64, default '0'",
        "  + Topics.Partitions.ReplicaEpoch int32, default '0'",
        "  in version 1, 2:",
        "  - Topics.Partitions.ReplicaEpoch int64, default '0'",
        "  + Topics.Partitions.ReplicaEpoch int32, default '0'",
        "  - Topics.Partitions.Haste int8, default '3'",
    ]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("VoteRequest", lambda s: s.update(flexibleVersions="1+")),
        ("VoteRequest", lambda s: s.update(apiKey=99)),
        ("VoteRequest", lambda s: s["fields"].reverse()),
        ("VoteRequest", lambda s: s["fields"][0].update(nullableVersions="1+")),
        ("VoteRequest", lambda s: s["fields"][1].update(ignorable=False)),
        ("FetchRequest", lambda s: s["fields"][0].update(tag=3)),
        ("FetchRequest", lambda s: s["fields"][0].update(taggedVersions="13+")),
        ("FetchRequest", lambda s: s["fields"][3].update(default="5")),
        ("RequestHeader", lambda s: s["fields"][3].pop("flexibleVersions")),
        ("DescribeQuorumResponse", lambda s: s["commonStructs"][0]["fields"].pop()),
    ],
)
def test_nothing_that_a_schema_says_can_change_unseen(name: str, change: Any) -> None:
    assert changed(name, change) != []


def test_a_message_that_we_have_no_use_for_is_named_unless_told_otherwise() -> None:
    new = {
        "name": "UnforeseenRecord",
        "type": "metadata",
        "apiKey": 99,
        "validVersions": "0",
        "flexibleVersions": "0+",
        "fields": [],
    }
    assert schemas.differences([new]) == ["UnforeseenRecord (api key 99): is not declared"]
    assert schemas.differences([new], only_declared=True) == []


# Where schemas are found --------------------------------------------------------------------------

COMMENTED = '// a licence\n//\n{\n  // a remark\n  "name": "NoOpRecord", "type": "metadata", "apiKey": 20,\n' + (
    '  "validVersions": "0", "flexibleVersions": "0+", "fields": []\n}\n'
)


def test_schemas_are_read_from_a_directory_and_from_a_jar(tmp_path: Path) -> None:
    directory = tmp_path / "common" / "metadata"
    directory.mkdir(parents=True)
    (directory / "NoOpRecord.json").write_text(COMMENTED)
    jar = tmp_path / "kafka-metadata.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("common/metadata/NoOpRecord.json", COMMENTED)
        archive.writestr("org/apache/kafka/Other.class", b"\xca\xfe")

    for path in (tmp_path / "common", directory / "NoOpRecord.json", jar):
        assert [schema["name"] for schema in schemas.load_schemas(path)] == ["NoOpRecord"]


def test_the_command_says_what_differs_and_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert schemas.main(["diff", str(NEWEST)]) == 0
    assert capsys.readouterr().out == f"{len(released())} schemas, no difference\n"

    assert schemas.main(["diff", str(OLDEST)]) == 1
    assert "FetchRequest:\n  version 0, 1, 2, 3 is not declared" in capsys.readouterr().out


def test_the_command_says_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "no.jar").write_bytes(b"no jar")
    for name in ("missing.json", "empty", "no.jar"):
        assert schemas.main(["diff", str(tmp_path / name)]) == 2
        assert capsys.readouterr().err.startswith("schemas: ")
    with pytest.raises(ConfigError, match="holds no schemas"):
        schemas.load_schemas(tmp_path / "empty")
    assert schemas.main(["write", str(NEWEST), "--message", "Nonsense"]) == 2
    assert capsys.readouterr().err == "schemas: no schema of Nonsense\n"
