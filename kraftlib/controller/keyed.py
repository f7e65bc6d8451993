"""Records that are kept by key: access rules, credentials, tokens, quotas, producer ids.

Brokers act on them. A controller stores them, gives them out, and has them in its snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kraftlib.codec.declarations import Message
from kraftlib.controller.journal import Journal, Table
from kraftlib.metadata import security_records as security
from kraftlib.metadata.config_records import ClientQuotaRecord, ProducerIdsRecord

PRODUCER_IDS: Final = ("producer ids",)


def quota_key(entity: Iterable[ClientQuotaRecord.EntityData], key: str) -> tuple[object, ...]:
    """Return the key of a quota: its entity's parts have no order."""
    parts = sorted((part.entity_type, part.entity_name or "", part.entity_name is None) for part in entity)
    return "quota", tuple(parts), key


def scram_key(user: str, mechanism: int) -> tuple[object, ...]:
    """Return the key of a credential."""
    return "scram", user, mechanism


def _quota(record: ClientQuotaRecord) -> tuple[object, ...]:
    return quota_key(record.entity, record.key)


SET: Final[Mapping[type[Message], Callable[[Any], tuple[object, ...]]]] = {
    ProducerIdsRecord: lambda record: PRODUCER_IDS,
    security.AccessControlEntryRecord: lambda record: ("acl", record.id),
    security.UserScramCredentialRecord: lambda record: scram_key(record.name, record.mechanism),
    security.DelegationTokenRecord: lambda record: ("token", record.token_id),
    ClientQuotaRecord: _quota,
}
REMOVED: Final[Mapping[type[Message], Callable[[Any], tuple[object, ...]]]] = {
    security.RemoveAccessControlEntryRecord: lambda record: ("acl", record.id),
    security.RemoveUserScramCredentialRecord: lambda record: scram_key(record.name, record.mechanism),
    security.RemoveDelegationTokenRecord: lambda record: ("token", record.token_id),
}


class Keyed:
    """The newest record of each key."""

    def __init__(self, journal: Journal) -> None:
        self.records: Final[Table[tuple[object, ...], Message]] = Table(journal)

    def replay(self, record: Message) -> None:
        """Take over a record."""
        key_of = SET.get(type(record))
        if key_of is None:
            self.records.discard(REMOVED[type(record)](record))
        elif isinstance(record, ClientQuotaRecord) and record.remove:
            self.records.discard(_quota(record))
        else:
            self.records.put(key_of(record), record)

    def snapshot(self, records: Mapping[tuple[object, ...], Message]) -> Iterator[Message]:
        """Yield the records."""
        yield from records.values()

    def access_rules(self) -> Iterator[security.AccessControlEntryRecord]:
        """Yield the rules of access."""
        return (one for one in self.records.values() if isinstance(one, security.AccessControlEntryRecord))

    def delegation_tokens(self) -> Iterator[security.DelegationTokenRecord]:
        """Yield the tokens."""
        return (one for one in self.records.values() if isinstance(one, security.DelegationTokenRecord))

    @property
    def next_producer_id(self) -> int:
        """The first producer id that nobody has."""
        record = self.records.get(PRODUCER_IDS)
        return record.next_producer_id if isinstance(record, ProducerIdsRecord) else 0
