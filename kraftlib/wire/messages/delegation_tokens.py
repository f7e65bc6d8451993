"""Create-, Renew- and ExpireDelegationToken (38, 39, 40): secrets that a principal gives to others (KIP-48)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, Struct, array, binary, int16, int32, int64, message, string


@message(kind="request", api_key=38, versions="0-3", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class CreateDelegationTokenRequest(Message):
    """The owner of the token, and those who may renew it."""

    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: tuple[CreatableRenewers, ...] = array("CreatableRenewers", "0+")
    max_lifetime_ms: int = int64("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class CreatableRenewers(Struct):
        """One who may renew it."""

        principal_type: str = string("0+")
        principal_name: str = string("0+")


@message(kind="response", api_key=38, versions="0-3", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class CreateDelegationTokenResponse(Message):
    """The new token; times are milliseconds since 1970."""

    error_code: int = int16("0+")
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64("0+")
    expiry_timestamp_ms: int = int64("0+")
    max_timestamp_ms: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = binary("0+")
    throttle_time_ms: int = int32("0+")


@message(kind="request", api_key=39, versions="0-2", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class RenewDelegationTokenRequest(Message):
    """A token, and how long it is to live from now on."""

    hmac: bytes = binary("0+")
    renew_period_ms: int = int64("0+")


@message(kind="response", api_key=39, versions="0-2", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class RenewDelegationTokenResponse(Message):
    """When it expires, in milliseconds since 1970."""

    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")


@message(kind="request", api_key=40, versions="0-2", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ExpireDelegationTokenRequest(Message):
    """A token, and how long it is still to live; it is removed at once for a negative number."""

    hmac: bytes = binary("0+")
    expiry_time_period_ms: int = int64("0+")


@message(kind="response", api_key=40, versions="0-2", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ExpireDelegationTokenResponse(Message):
    """When it expires, in milliseconds since 1970."""

    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")
