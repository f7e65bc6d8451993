"""Metadata records as the values of a client: `RaftClient(config, serde=MetadataSerde())`.

An observer of a Kafka cluster gets `TopicRecord`s and their like. A record of a newer Kafka stands there as an
`UnknownRecord`, since only the application knows whether it can do without.
"""

from __future__ import annotations

from kraftlib.codec.declarations import Message
from kraftlib.errors import ConfigError, LocalProtocolError
from kraftlib.frozen import immutable
from kraftlib.metadata.frame import UnknownRecordError, decode_record, encode_record


@immutable
class UnknownRecord:
    """A record of a type or version that this release does not know."""

    api_key: int
    version: int
    data: bytes
    """The whole value, frame included."""


class MetadataSerde:
    """Metadata records in Kafka's frame; written in the newest version of each, and read in all."""

    def to_bytes(self, value: Message | UnknownRecord) -> bytes:
        """Return the framed record. Raises: ConfigError, if `value` is none."""
        if isinstance(value, UnknownRecord):
            return value.data
        try:
            return encode_record(value, value.valid_versions.last)
        except (AttributeError, LocalProtocolError) as error:
            raise ConfigError(f"{value!r} is no metadata record: {error}") from error

    def from_bytes(self, data: bytes) -> Message | UnknownRecord:
        """Return the record. Raises: RemoteProtocolError, if `data` is no frame, or does not hold what it says."""
        try:
            return decode_record(data)[0]
        except UnknownRecordError as error:
            return UnknownRecord(error.api_key, error.version, data)
