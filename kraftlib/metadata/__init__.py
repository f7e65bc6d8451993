"""Kafka's metadata records, declared: names, ids, versions, and no behaviour.

They are what the values of a Kafka cluster's metadata log hold, each in a frame that says its type and version. Classes
are imported when they are first met.
"""

from __future__ import annotations

from kraftlib.metadata.frame import UnknownRecordError, decode_record, encode_record
from kraftlib.metadata.table import RECORDS, RecordType, record_class, record_type_name

__all__ = [
    "decode_record",
    "encode_record",
    "UnknownRecordError",
    "RECORDS",
    "RecordType",
    "record_class",
    "record_type_name",
]
