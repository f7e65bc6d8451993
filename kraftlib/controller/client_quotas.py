"""AlterClientQuotas: the rates that users, clients and addresses may reach (KIP-546, KIP-599, KIP-612)."""

from __future__ import annotations

import contextlib
import ipaddress
import math
from collections.abc import Mapping
from typing import Final

from kraftlib.codec.declarations import Message
from kraftlib.controller.context import Context
from kraftlib.controller.keyed import quota_key
from kraftlib.controller.results import RECORDS_MAX, Decision, RefusedError
from kraftlib.metadata.config_records import ClientQuotaRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

_INT_MAX: Final = float((1 << 31) - 1)
_LONG_MAX: Final = float((1 << 63) - 1)
OF_CLIENTS: Final[Mapping[str, float | None]] = {
    "producer_byte_rate": _LONG_MAX,
    "consumer_byte_rate": _LONG_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
OF_ADDRESSES: Final[Mapping[str, float | None]] = {"connection_creation_rate": _INT_MAX}
"""The highest value of quotas that are whole numbers; None for the others."""

IPV4_BYTES: Final = 4
INT_DIGITS: Final = 10
"""No number of 32 bits has more."""

FRACTION: Final = 1e-6
"""A whole number may be off by so much."""

Entity = Mapping[str, str | None]
Wanted = AlterClientQuotasRequest.EntryData
Row = AlterClientQuotasResponse.EntryData


def alter_client_quotas(context: Context, request: AlterClientQuotasRequest, version: int) -> Decision:
    """Change what can be changed; the answer has a line for each entity."""
    records: list[Message] = []
    rows: dict[tuple[tuple[str, str | None], ...], RefusedError | None] = {}
    for wanted in request.entries:
        entity = {part.entity_type: part.entity_name for part in wanted.entity}
        place = tuple(sorted(entity.items(), key=repr))
        try:
            if place in rows:
                raise _wrong("the entity stands twice in the request: its first change alone is made")
            made = _alter(context, entity, wanted)
            if len(records) + len(made) > RECORDS_MAX:
                raise RefusedError(ErrorCode.POLICY_VIOLATION, "Excessively large number of changes per request.")
            records += made
            rows[place] = None
        except RefusedError as refused:
            rows[place] = refused
    entries = tuple(_row(dict(place), refused) for place, refused in rows.items())
    answer = AlterClientQuotasResponse(entries=entries)
    return Decision(() if request.validate_only else records, answer)


def _row(entity: Entity, refused: RefusedError | None) -> Row:
    parts = (AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items())
    return Row(
        error_code=refused.code if refused else ErrorCode.NONE,
        error_message=refused.message if refused else None,
        entity=tuple(parts),
    )


def _alter(context: Context, entity: Entity, wanted: Wanted) -> list[Message]:
    if len({change.key for change in wanted.ops}) != len(wanted.ops):
        raise _wrong("a quota stands twice in the request")
    limits = _quotas_of(entity)
    parts = tuple(ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items())
    records: list[Message] = []
    for change in wanted.ops:
        present = context.state.keyed.records.get(quota_key(parts, change.key))
        if change.remove:
            if present is not None:
                records.append(ClientQuotaRecord(entity=parts, key=change.key, remove=True))
            continue
        _check_value(limits, change.key, change.value)
        if not isinstance(present, ClientQuotaRecord) or present.value != change.value:
            records.append(ClientQuotaRecord(entity=parts, key=change.key, value=change.value))
    return records


def _quotas_of(entity: Entity) -> Mapping[str, float | None]:
    """Return the quotas that such an entity can have. Raises: RefusedError, if there is no such entity."""
    if not entity:
        raise _wrong("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in ENTITY_TYPES:
            raise _wrong(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _wrong(f"Empty {kind} not supported")
    if IP not in entity:
        return OF_CLIENTS
    if len(entity) > 1:
        raise _wrong("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    address = entity[IP]
    if address is not None and not _is_address(address):
        raise _wrong(f"{address} is not a valid IP address")
    return OF_ADDRESSES


def _is_address(text: str) -> bool:
    """Whether Java takes this for an address; names of hosts, which it looks up, are none here."""
    if _is_short(text):
        return True
    is_bracketed = text.startswith("[") and text.endswith("]")
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(text[1:-1] if is_bracketed else text).version == 6 or not is_bracketed
    return False


def _is_short(text: str) -> bool:
    """Whether this is an IPv4 address of up to four numbers; of fewer, the last one stands for all bytes left."""
    parts = text.split(".")
    if len(parts) > IPV4_BYTES or not all(part.isascii() and part.isdigit() for part in parts):
        return False
    *first, last = (int(part) if len(part) <= INT_DIGITS else 1 << 32 for part in parts)
    return all(number < 1 << 8 for number in first) and last < 1 << 8 * (IPV4_BYTES - len(first))


def _check_value(limits: Mapping[str, float | None], key: str, value: float) -> None:
    if key not in limits:
        raise _wrong(f"Invalid configuration key {key}")
    if value <= 0:  # which Java's NaN is not; it limits nothing
        raise _wrong(f"Quota {key} must be greater than 0")
    limit = limits[key]
    if limit is None:
        return
    if value > limit:
        raise _wrong(f"Proposed value for {key} is too large: {value} is above {limit:.0f}")
    if math.fmod(value, 1.0) > FRACTION:
        raise _wrong(f"{key} cannot be a fractional value.")


def _wrong(text: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, text)
