"""Which metadata records there are. The numbers 6, 13 and 16 are not used."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Final

from kraftlib.codec.declarations import Message


class RecordType(enum.IntEnum):
    """The number of a metadata record, under the name that Kafka's tools print."""

    REGISTER_BROKER_RECORD = 0
    UNREGISTER_BROKER_RECORD = 1
    TOPIC_RECORD = 2
    PARTITION_RECORD = 3
    CONFIG_RECORD = 4
    PARTITION_CHANGE_RECORD = 5
    FENCE_BROKER_RECORD = 7
    UNFENCE_BROKER_RECORD = 8
    REMOVE_TOPIC_RECORD = 9
    DELEGATION_TOKEN_RECORD = 10
    USER_SCRAM_CREDENTIAL_RECORD = 11
    FEATURE_LEVEL_RECORD = 12
    CLIENT_QUOTA_RECORD = 14
    PRODUCER_IDS_RECORD = 15
    BROKER_REGISTRATION_CHANGE_RECORD = 17
    ACCESS_CONTROL_ENTRY_RECORD = 18
    REMOVE_ACCESS_CONTROL_ENTRY_RECORD = 19
    NO_OP_RECORD = 20
    ZK_MIGRATION_STATE_RECORD = 21
    REMOVE_USER_SCRAM_CREDENTIAL_RECORD = 22
    BEGIN_TRANSACTION_RECORD = 23
    END_TRANSACTION_RECORD = 24
    ABORT_TRANSACTION_RECORD = 25
    REMOVE_DELEGATION_TOKEN_RECORD = 26
    REGISTER_CONTROLLER_RECORD = 27
    CLEAR_ELR_RECORD = 28
    UNREGISTER_CONTROLLER_RECORD = 29


_NUMBERS: Final = frozenset(RecordType)


def record_type_name(cls: type[Message]) -> str:
    """Return the name that Kafka's tools print: `NoOpRecord` is `NO_OP_RECORD`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).upper()


@cache
def record_class(api_key: int) -> type[Message] | None:
    """Return the class of a number, or None, if we do not know it."""
    if api_key not in _NUMBERS:
        return None
    name = RecordType(api_key).name
    return next(cls for cls in _classes_beside(api_key) if record_type_name(cls) == name)


def _classes_beside(api_key: int) -> list[type[Message]]:
    """Return the classes of the module in which this number is declared."""
    module: ModuleType
    match api_key:
        case 0 | 1 | 7 | 8 | 17 | 27 | 29:
            from kraftlib.metadata import broker_records

            module = broker_records
        case 2 | 3 | 5 | 9 | 28:
            from kraftlib.metadata import topic_records

            module = topic_records
        case 4 | 12 | 14 | 15 | 21:
            from kraftlib.metadata import config_records

            module = config_records
        case 10 | 11 | 18 | 19 | 22 | 26:
            from kraftlib.metadata import security_records

            module = security_records
        case _:
            from kraftlib.metadata import log_records

            module = log_records
    return [cls for cls in vars(module).values() if isinstance(cls, type) and issubclass(cls, Message)]


class _Records(Mapping[int, type[Message]]):
    def __getitem__(self, api_key: int) -> type[Message]:
        found = record_class(api_key)
        if found is None:
            raise KeyError(api_key)
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(RecordType)

    def __len__(self) -> int:
        return len(RecordType)


RECORDS: Final[Mapping[int, type[Message]]] = _Records()
"""All of them by number; each is loaded when it is looked up."""
