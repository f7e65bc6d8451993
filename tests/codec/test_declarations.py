from __future__ import annotations

import attrs
import pytest

from kraftlib.codec.declarations import Declaration, attribute_name, declared_fields, nested_structs, schema_name
from kraftlib.codec.declared import Message, Struct, array, binary, int16, int32, message, string, struct
from kraftlib.codec.versions import NO_VERSIONS
from kraftlib.errors import InvariantError
from tools.schemas import declared_messages


@message(kind="data", versions="0-3", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class Sample(Message):
    """A message of the tests."""

    name: str | None = string("0+", nullable="1+", default=None)
    content: bytes = binary("0+")
    inner: Inner = struct("Inner", "1+", tag=0, tagged="2+")
    others: tuple[Inner, ...] = array("Inner", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Inner(Struct):
        """A struct with a struct."""

        number: int = int32("0+", default=-1)
        most_inner: Sample.MostInner = struct("MostInner", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class MostInner(Struct):
        """A struct in a struct."""

        number: int = int16("0+", default=7)


def test_a_message_knows_what_was_said_of_it() -> None:
    assert (Sample.kind, Sample.api_key, str(Sample.valid_versions), str(Sample.flexible_versions)) == (
        "data",
        -1,
        "0-3",
        "2+",
    )
    assert nested_structs(Sample) == [Sample.Inner, Sample.MostInner]
    assert [name for name, _, _ in declared_fields(Sample)] == ["name", "content", "inner", "others"]
    _, inner, default = declared_fields(Sample)[2]
    assert (inner.type, inner.tag, str(inner.versions), str(inner.tagged)) == ("Inner", 0, "1+", "2+")
    assert default == Sample.Inner(number=-1, most_inner=Sample.MostInner(number=7))


def test_every_field_has_its_default() -> None:
    sample = Sample()
    assert (sample.name, sample.content, sample.inner, sample.others) == (None, b"", Sample.Inner(), ())
    assert sample.inner.most_inner.number == 7
    assert sample.inner is Sample().inner  # one for all: they cannot be changed


def test_every_declared_message_can_be_made_of_nothing() -> None:
    for cls in declared_messages().values():
        assert cls() == cls()
        assert repr(cls()) == f"{cls.__name__}()"


def test_a_struct_is_equal_by_what_is_declared_and_cannot_be_changed() -> None:
    a, b = Sample(name="a", others=(Sample.Inner(),)), Sample(name="a", others=(Sample.Inner(),))
    assert a == b
    assert hash(a) == hash(b)
    assert a != Sample(name="b")
    assert a == attrs.evolve(a, unknown_tagged_fields=((3, b""),))
    assert Sample.Inner() != Sample.MostInner()
    assert a != "a"
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        a.name = "b"  # type: ignore[misc]


def test_records_are_equal_whether_they_are_a_view_or_a_copy() -> None:
    assert Sample(content=memoryview(b"abc")) == Sample(content=b"abc")  # type: ignore[arg-type]
    assert hash(Sample(content=memoryview(b"abc"))) == hash(Sample(content=b"abc"))  # type: ignore[arg-type]


def test_the_text_of_a_struct_names_what_differs_from_the_default_and_no_long_bytes() -> None:
    sample = Sample(content=b"x" * 33, others=(Sample.Inner(number=3),), unknown_tagged_fields=((3, b"y"),))
    assert repr(sample) == (
        "Sample(content=<33 bytes>, others=(Sample.Inner(number=3),), unknown_tagged_fields=((3, b'y'),))"
    )
    assert repr(Sample(content=memoryview(b"short"))) == "Sample(content=b'short')"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schema", "attribute"),
    [
        ("ClusterId", "cluster_id"),
        ("ReplicaDirectoryId", "replica_directory_id"),
        ("KRaftVersionFeature", "kraft_version_feature"),
        ("KRaftVersion", "kraft_version"),
        ("LastKnownElr", "last_known_elr"),
        ("EndPoints", "end_points"),
        ("Isr", "isr"),
        ("IsMigratingZkBroker", "is_migrating_zk_broker"),
    ],
)
def test_an_attribute_is_the_name_of_the_schema_in_snake_case(schema: str, attribute: str) -> None:
    assert attribute_name(schema) == attribute
    declaration = Declaration(type="string", versions=NO_VERSIONS)
    if "KRaft" not in schema:
        assert schema_name(attribute, declaration) == schema
    assert schema_name(attribute, attrs.evolve(declaration, name=schema)) == schema


def test_a_message_without_its_decorator_is_found_out() -> None:
    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Forgotten(Message):
        inner: Inner = struct("Inner", "0+")

        @attrs.frozen(kw_only=True, eq=False, repr=False)
        class Inner(Struct):
            number: int = int32("0+")

    with pytest.raises(InvariantError, match="lacks its @message"):
        Forgotten()


def test_a_misspelt_word_in_a_declaration_is_found_out_at_once() -> None:
    with pytest.raises(TypeError, match="nulable"):
        string("0+", nulable="0+")
    with pytest.raises(ValueError, match="is no range"):
        string("0..3")
