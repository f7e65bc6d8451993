"""Every message of every version, against Kafka's schemas, itself, and two other libraries."""

from __future__ import annotations

import importlib
import io
import re
import warnings
from typing import Any, Final

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.codec.declarations import Message
from kraftlib.codec.declared import read, write
from kraftlib.wire.frames import encode_request, encode_response
from kraftlib.wire.messages.api_versions import ApiVersionsResponse
from tests import schema_twin
from tests.declared_messages import any_message
from tools.schemas import declared_messages

EVERY = [
    pytest.param(cls, version, id=f"{cls.__name__}-{version}")
    for cls in declared_messages().values()
    for version in cls.valid_versions
]
SEEDS = st.integers(0, 2**32 - 1)
RELEASED = {release: schema_twin.schemas(release) for release in ("kafka-4.3.1", "kafka-3.9.2")}
RENAMED = {"CandidateEpoch": "ReplicaEpoch", "CandidateId": "ReplicaId", "CandidateDirectoryId": "ReplicaDirectoryId"}


@pytest.mark.parametrize(("cls", "version"), EVERY)
@settings(max_examples=settings.default.max_examples // 4)
@given(seed=SEEDS)
def test_what_is_written_is_read_again_and_is_what_the_schema_says(cls: type[Message], version: int, seed: int) -> None:
    value = any_message(cls, version, seed)

    encoded = write(value, version)

    assert read(cls, encoded, version, expect_end=True) == value
    for released in RELEASED.values():
        schema = released.get(cls.__name__)
        if schema is not None and schema_twin.within(version, schema["validVersions"]):
            assert encoded == schema_twin.encode(with_new_names(schema), value, version)


def with_new_names(schema: Any) -> Any:
    """Rename what 4.0 renamed in Vote; in EndQuorumEpoch, CandidateId kept its name."""
    if isinstance(schema, dict) and schema.get("name") == "EndQuorumEpochRequest":
        return schema
    if isinstance(schema, dict):
        return {key: with_new_names(value) for key, value in schema.items()}
    if isinstance(schema, list):
        return [with_new_names(item) for item in schema]
    return RENAMED.get(schema, schema)


def test_every_message_and_version_of_a_release_is_compared() -> None:
    """The comparison above passes over what is not declared; this is what that may be."""
    declared = declared_messages()
    passed_over = {
        (release, name, version)
        for release, schemas in RELEASED.items()
        for name, schema in schemas.items()
        for version in range(20)
        if schema_twin.within(version, schema["validVersions"])
        and (name not in declared or version not in declared[name].valid_versions)
    }

    assert {key for key in passed_over if key[1] not in ("QuorumStateData", "ControlRecordTypeSchema")} == {
        ("kafka-3.9.2", "RequestHeader", 0),  # of the ControlledShutdown of long ago
        *(("kafka-3.9.2", name, v) for name in ("FetchRequest", "FetchResponse") for v in range(4)),  # before KRaft
    }


# Other libraries ----------------------------------------------------------------------------------


def kio_class(cls: type[Message], version: int) -> Any:
    """Return kio's class for this version of a message, if it has one."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()
    module = cls.kind if cls.kind in ("request", "response", "header") else "data"
    package = words if cls.kind == "header" else words.removesuffix("_request").removesuffix("_response")
    try:
        found = importlib.import_module(f"kio.schema.{package}.v{version}.{module}")
    except ModuleNotFoundError:
        return None
    return getattr(found, cls.__name__, None)


KINDS: Final = ("Request", "Response")

# kio makes a timedelta of the lifetime of a session or token, and refuses numbers that fit in none.
OTHERWISE_IN_KIO = {
    ("SaslAuthenticateResponse", 1),
    ("SaslAuthenticateResponse", 2),
    *(
        (f"{what}DelegationToken{kind}", version)
        for what in ("Create", "Renew", "Expire")
        for kind in KINDS
        for version in (0, 1, 2, 3)
    ),
}
KNOWN_TO_KIO = [
    param
    for param in EVERY
    if kio_class(*param.values) is not None and (param.values[0].__name__, param.values[1]) not in OTHERWISE_IN_KIO
]


def test_kio_knows_all_raft_messages() -> None:
    known = {param.values[0].__name__ for param in KNOWN_TO_KIO}
    for name in "Fetch Vote BeginQuorumEpoch EndQuorumEpoch FetchSnapshot DescribeQuorum ApiVersions".split():
        assert {f"{name}Request", f"{name}Response"} <= known


@pytest.mark.parametrize(("cls", "version"), KNOWN_TO_KIO)
@settings(max_examples=settings.default.max_examples // 5)
@given(seed=SEEDS)
def test_kio_reads_our_bytes_and_writes_them_again(cls: type[Message], version: int, seed: int) -> None:
    from kio.serial import entity_reader, entity_writer

    theirs = kio_class(cls, version)
    encoded = write(any_message(cls, version, seed), version)

    entity, size = entity_reader(theirs)(encoded, 0)
    out = io.BytesIO()
    entity_writer(theirs)(out, entity)

    assert size == len(encoded)
    assert out.getvalue() == encoded


def kafka_python_class(cls: type[Message]) -> Any:
    """Return kafka-python's class for a message, if it has one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of how it reads its own schemas
        from kafka.protocol.admin import cluster
        from kafka.protocol.consumer import fetch
        from kafka.protocol.metadata import api_versions

    return next((getattr(m, cls.__name__) for m in (fetch, cluster, api_versions) if hasattr(m, cls.__name__)), None)


KNOWN_TO_KAFKA_PYTHON = [
    param
    for param in EVERY
    if (theirs := kafka_python_class(param.values[0])) is not None and param.values[1] <= theirs.max_version
]


def test_kafka_python_knows_what_a_client_sends() -> None:
    known = {param.values[0].__name__ for param in KNOWN_TO_KAFKA_PYTHON}
    for name in ("Fetch", "ApiVersions", "DescribeCluster", "DescribeQuorum", "UpdateFeatures"):
        assert {f"{name}Request", f"{name}Response"} <= known


@pytest.mark.parametrize(("cls", "version"), KNOWN_TO_KAFKA_PYTHON)
@settings(max_examples=settings.default.max_examples // 5)
@given(seed=SEEDS)
def test_kafka_python_reads_our_frames_and_writes_the_messages_again(
    cls: type[Message], version: int, seed: int
) -> None:
    theirs = kafka_python_class(cls)
    value = any_message(cls, version, seed)
    if cls is ApiVersionsResponse:
        value = attrs.evolve(value, error_code=0)  # with an error, kafka-python takes it for version 0
    encoded = write(value, version)
    if cls.kind == "request":
        frame = encode_request(value, version=version, correlation_id=seed % 1000, client_id="kafka-python")
    else:
        frame = encode_response(value, version=version, correlation_id=seed % 1000)

    decoded = theirs.decode(frame, version=version, header=True)

    assert decoded.header.correlation_id == seed % 1000
    decoded._header = None  # it cannot write that of a response which it has read
    assert decoded.encode(version=version) == encoded
