"""AlterClientQuotas (49): the rates that clients may reach (KIP-546)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, Struct, array, boolean, float64, int16, int32, message, string


@message(kind="request", api_key=49, versions="0-1", flexible="1+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AlterClientQuotasRequest(Message):
    """The quotas that are to change."""

    entries: tuple[EntryData, ...] = array("EntryData", "0+")
    validate_only: bool = boolean("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class EntryData(Struct):
        """The quotas of one entity."""

        entity: tuple[AlterClientQuotasRequest.EntityData, ...] = array("EntityData", "0+")
        ops: tuple[AlterClientQuotasRequest.OpData, ...] = array("OpData", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class EntityData(Struct):
        """A part of the entity: a user, a client id or an address; a null name is the default."""

        entity_type: str = string("0+")
        entity_name: str | None = string("0+", nullable="0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class OpData(Struct):
        """One quota; it is set or removed."""

        key: str = string("0+")
        value: float = float64("0+")
        remove: bool = boolean("0+")


@message(kind="response", api_key=49, versions="0-1", flexible="1+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AlterClientQuotasResponse(Message):
    """The result for each entity."""

    throttle_time_ms: int = int32("0+")
    entries: tuple[EntryData, ...] = array("EntryData", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class EntryData(Struct):
        """One entity."""

        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        entity: tuple[AlterClientQuotasResponse.EntityData, ...] = array("EntityData", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class EntityData(Struct):
        """A part of it."""

        entity_type: str = string("0+")
        entity_name: str | None = string("0+", nullable="0+")
