"""Which thing of a Kafka cluster a metadata record is about: `topic:events`, `broker:3`, `config:TOPIC:events`.

Topics are known by id and have names; a name may have belonged to several ids, one after the other. So a topic is asked
for by name, and its history is that of every id that ever had the name, with its partitions and its configuration.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

import attrs

from kraftlib.codec.declarations import Message
from kraftlib.errors import ConfigError, ProtocolError
from kraftlib.metadata import RECORDS, decode_record
from kraftlib.metadata.image import RESOURCE_TYPES
from kraftlib.types import uuid_text

KINDS: Final = ("topic", "broker", "controller", "config", "feature", "quota", "user", "acl", "token")


@attrs.frozen
class Entity:
    """A kind, and the name or number by which it is asked for."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def parse_entity(text: str) -> Entity:
    """Read `kind:name`. Raises: ConfigError that lists the kinds."""
    kind, colon, name = text.partition(":")
    if not colon or kind not in KINDS or not name:
        raise ConfigError(f"{text!r} names nothing: expected KIND:NAME, as topic:events; kinds are {', '.join(KINDS)}")
    return Entity(kind, name)


def entity_of(record: Message) -> Entity | None:
    """Return what a record is about, a topic by its id; None, if it is about the log itself."""
    fields: Any = record
    match type(record).__name__:
        case "TopicRecord" | "PartitionRecord" | "PartitionChangeRecord" | "RemoveTopicRecord":
            return Entity("topic", uuid_text(fields.topic_id))
        case "RegisterBrokerRecord" | "UnregisterBrokerRecord" | "BrokerRegistrationChangeRecord" | "ProducerIdsRecord":
            return Entity("broker", str(fields.broker_id))
        case "FenceBrokerRecord" | "UnfenceBrokerRecord":
            return Entity("broker", str(fields.id))
        case "RegisterControllerRecord" | "UnregisterControllerRecord":
            return Entity("controller", str(fields.controller_id))
        case "ConfigRecord":
            kind = RESOURCE_TYPES.get(fields.resource_type, str(fields.resource_type))
            return Entity("config", f"{kind}:{fields.resource_name}")
        case "FeatureLevelRecord":
            return Entity("feature", fields.name)
        case "ClientQuotaRecord":
            parts = sorted((part.entity_type, part.entity_name or "") for part in fields.entity)
            return Entity("quota", ",".join(f"{kind}={name}" for kind, name in parts))
        case "UserScramCredentialRecord" | "RemoveUserScramCredentialRecord":
            return Entity("user", fields.name)
        case "AccessControlEntryRecord" | "RemoveAccessControlEntryRecord":
            return Entity("acl", uuid_text(fields.id))
        case "DelegationTokenRecord" | "RemoveDelegationTokenRecord":
            return Entity("token", fields.token_id)
    return None


@lru_cache(maxsize=32)
def types_about(kind: str) -> frozenset[int]:
    """Return the numbers of the record types that can be about a thing of this kind."""
    return frozenset(
        number for number, cls in RECORDS.items() if (entity := entity_of(cls())) is not None and entity.kind == kind
    )


def option_text(entities: Iterable[Entity]) -> str:
    """Return entities as the text of the option `about`."""
    return json.dumps(sorted(map(str, entities)))  # a name may have commas, as that of a quota of two parts


def wanted_entities(asked: Entity, topics: Iterable[tuple[str, str]]) -> frozenset[Entity]:
    """Return what `asked` stands for, given name and id of every topic that ever was: a topic by name has many ids."""
    if asked.kind != "topic":
        return frozenset({asked})
    ids = {topic_id for name, topic_id in topics if asked.name in (name, topic_id)}
    return frozenset({Entity("topic", topic_id) for topic_id in ids} | {Entity("config", f"TOPIC:{asked.name}")})


def nothing_about(asked: Entity, path: object, topics: Iterable[tuple[str, str]]) -> ConfigError:
    """Return the error that no record at `path` is about `asked`: an empty answer would look like a quiet life."""
    names = sorted({name for name, _ in topics})
    near = get_close_matches(asked.name, names, n=1) if asked.kind == "topic" else []
    hint = f"; did you mean topic:{near[0]}?" if near else ""
    return ConfigError(f"no record at {path} is about {asked}{hint}")


def is_about(value: bytes, wanted: Collection[Entity]) -> bool:
    """Whether the framed value is a record about one of `wanted`. A value that is no metadata record is about
    nothing."""
    try:
        return entity_of(decode_record(value)[0]) in wanted
    except ProtocolError:
        return False
