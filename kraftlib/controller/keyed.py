"""Records that are kept by key: access rules, credentials, tokens, quotas, producer ids.

Brokers act on them. A controller stores them, gives them out, and has them in its snapshots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kraftlib.codec.declarations import Message
from kraftlib.controller.access_rules import AccessRules
from kraftlib.controller.journal import Journal, Table
from kraftlib.controller.mutation_quotas import MUTATIONS, Entity
from kraftlib.metadata import security_records as security
from kraftlib.metadata.config_records import ClientQuotaRecord, ProducerIdsRecord

PRODUCER_IDS: Final = ("producer ids",)
ACL: Final = "acl"
QUOTA: Final = "quota"
TOKEN: Final = "token"


def quota_key(entity: Iterable[ClientQuotaRecord.EntityData], key: str) -> tuple[object, ...]:
    """Return the key of a quota: its entity's parts have no order."""
    return QUOTA, entity_of(entity), key


def entity_of(entity: Iterable[ClientQuotaRecord.EntityData]) -> Entity:
    """Return an entity as it can be looked up."""
    return tuple(sorted((part.entity_type, part.entity_name or "", part.entity_name is None) for part in entity))


def scram_key(user: str, mechanism: int) -> tuple[object, ...]:
    """Return the key of a credential."""
    return "scram", user, mechanism


def _rule(record: Message | None) -> security.AccessControlEntryRecord | None:
    return record if isinstance(record, security.AccessControlEntryRecord) else None


def _quota(record: ClientQuotaRecord) -> tuple[object, ...]:
    return quota_key(record.entity, record.key)


SET: Final[Mapping[type[Message], Callable[[Any], tuple[object, ...]]]] = {
    ProducerIdsRecord: lambda record: PRODUCER_IDS,
    security.AccessControlEntryRecord: lambda record: (ACL, record.id),
    security.UserScramCredentialRecord: lambda record: scram_key(record.name, record.mechanism),
    security.DelegationTokenRecord: lambda record: (TOKEN, record.token_id),
    ClientQuotaRecord: _quota,
}
REMOVED: Final[Mapping[type[Message], Callable[[Any], tuple[object, ...]]]] = {
    security.RemoveAccessControlEntryRecord: lambda record: (ACL, record.id),
    security.RemoveUserScramCredentialRecord: lambda record: scram_key(record.name, record.mechanism),
    security.RemoveDelegationTokenRecord: lambda record: (TOKEN, record.token_id),
}


class Tokens:
    """Delegation tokens by their secrets. A secret is computed once, when one is first looked for."""

    def __init__(self) -> None:
        self._found: dict[bytes, security.DelegationTokenRecord] = {}
        self._secrets: dict[str, bytes] = {}
        self._new: dict[str, security.DelegationTokenRecord] = {}
        self.owners: Final[Counter[str]] = Counter()
        """The numbers of tokens of those who have any."""

    def change(self, token_id: str, old: Message | None, token: Message | None) -> None:
        """Take a token as it is now in place of the old one; None: there is none."""
        self._count(old, -1)
        self._count(token, 1)
        self._new.pop(token_id, None)
        secret = self._secrets.pop(token_id, None)
        if secret is not None:
            del self._found[secret]
        if isinstance(token, security.DelegationTokenRecord):
            self._new[token_id] = token

    def _count(self, token: Message | None, step: int) -> None:
        if isinstance(token, security.DelegationTokenRecord):
            self.owners[token.owner] += step
            if not self.owners[token.owner]:
                del self.owners[token.owner]

    def of(self, secret: bytes, secret_of: Callable[[str], bytes]) -> security.DelegationTokenRecord | None:
        """Return the token of a secret; `secret_of` computes that of a token id, always the same."""
        for token_id, token in self._new.items():
            known = self._secrets[token_id] = secret_of(token_id)
            self._found[known] = token
        self._new.clear()
        return self._found.get(secret)


class Keyed:
    """The newest record of each key."""

    def __init__(self, journal: Journal) -> None:
        self.records: Final[Table[tuple[object, ...], Message]] = Table(journal, watch=self._index)
        self.rules: Final = AccessRules()
        self.tokens: Final = Tokens()
        self.mutation_rates: Final[dict[Entity, float]] = {}
        """The quotas of controller mutations."""

    def _index(self, key: tuple[object, ...], old: Message | None, new: Message | None) -> None:
        if key[0] == ACL:
            self.rules.change(_rule(old), _rule(new))
        elif key[0] == TOKEN:
            self.tokens.change(str(key[1]), old, new)
        elif key[0] == QUOTA and key[2] == MUTATIONS:
            for quota in (old, new):
                if isinstance(quota, ClientQuotaRecord):
                    self.mutation_rates.pop(entity_of(quota.entity), None)
            if isinstance(new, ClientQuotaRecord):
                self.mutation_rates[entity_of(new.entity)] = new.value

    def replay(self, record: Message) -> None:
        """Take over a record."""
        key_of = SET.get(type(record))
        if key_of is None:
            self.records.discard(REMOVED[type(record)](record))
        elif isinstance(record, ClientQuotaRecord) and record.remove:
            self.records.discard(_quota(record))
        elif isinstance(record, ProducerIdsRecord):  # as in Kafka, nothing keeps who was given the last block
            self.records.put(PRODUCER_IDS, ProducerIdsRecord(broker_id=-1, next_producer_id=record.next_producer_id))
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
        """The first producer id that is free."""
        record = self.records.get(PRODUCER_IDS)
        return record.next_producer_id if isinstance(record, ProducerIdsRecord) else 0
