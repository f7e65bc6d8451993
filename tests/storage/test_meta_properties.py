from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import StorageError
from kraftlib.storage.meta_properties import (
    MetaProperties,
    encode_properties,
    parse_properties,
    read_meta_properties,
    write_meta_properties,
)
from kraftlib.types import parse_uuid

DATA = Path(__file__).parent.parent / "data"
KAFKA = MetaProperties(
    node_id=1, cluster_id="KamCna3aR0Ca0-LOI6hKfg", directory_id=parse_uuid("e9MFl328Q-S5WPDKSl6znA")
)
NOW = 1_795_255_738_586
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def test_what_kafka_wrote_is_read() -> None:
    assert read_meta_properties(DATA / "kafka-4.3.1" / "n1") == KAFKA


def test_what_is_written_is_what_kafka_wrote(tmp_path: Path) -> None:
    """Down to the second at which that directory was formatted."""
    write_meta_properties(tmp_path, KAFKA, now_ms=NOW, file_mode=0o600)

    assert (tmp_path / "meta.properties").read_bytes() == (DATA / "kafka-4.3.1/n1/meta.properties").read_bytes()


def test_a_directory_without_the_file_is_not_formatted(tmp_path: Path) -> None:
    assert read_meta_properties(tmp_path) is None


@given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=4))
def test_properties_that_are_written_are_read(properties: dict[str, str]) -> None:
    assert parse_properties(encode_properties(properties, now_ms=NOW)) == properties


def test_properties_are_written_as_java_writes_them() -> None:
    data = encode_properties({"a b": " c d", "k": "x=y:z#!\\\t", "u": "é€😀"}, now_ms=0)

    assert data == (
        b"#\n#Thu Jan 01 00:00:00 UTC 1970\na\\ b=\\ c d\nk=x\\=y\\:z\\#\\!\\\\\\t\nu=\\u00E9\\u20AC\\uD83D\\uDE00\n"
    )


def test_properties_are_read_as_java_reads_them() -> None:
    text = b"""\
! a comment
  # another
a = 1
b:2
c 3
d\\=e=4 = 5 \\\\
long = one \\
       two
empty
only\\ key:
\xe9=\xe9
last=\\q\\u0041"""

    assert parse_properties(text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d=e": "4 = 5 \\",
        "long": "one two",
        "empty": "",
        "only key": "",
        "é": "é",
        "last": "qA",
    }


def test_a_directory_without_an_id_of_its_own_is_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(b"version=1\nnode.id=7\ncluster.id=x\n")

    assert read_meta_properties(tmp_path) == MetaProperties(node_id=7, cluster_id="x", directory_id=None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "version is missing"),
        (b"version=0\nbroker.id=1\ncluster.id=x\n", "version is 0, only 1 is known"),
        (b"version=2\nnode.id=1\ncluster.id=x\n", "version is 2"),
        (b"version=1\nnode.id=-1\ncluster.id=x\n", "node.id is '-1'"),
        (b"version=1\nnode.id=1\n", "cluster.id None"),
        (b"version=1\nnode.id=1\ncluster.id=x\ndirectory.id=short\n", "directory.id: 'short' is no id"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(text: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(text)

    with pytest.raises(StorageError, match=reason) as caught:
        read_meta_properties(tmp_path)
    assert caught.value.path == tmp_path / "meta.properties"


def test_ids_are_those_of_the_types(tmp_path: Path) -> None:
    meta = MetaProperties(node_id=2**31 - 1, cluster_id="my cluster = 1", directory_id=uuid.UUID(int=2**127))
    write_meta_properties(tmp_path, meta, now_ms=NOW, file_mode=0o640)

    assert read_meta_properties(tmp_path) == meta
    assert (tmp_path / "meta.properties").stat().st_mode & 0o777 == 0o640
