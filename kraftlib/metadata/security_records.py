"""Credentials, delegation tokens and access control (KIP-48, KIP-554, KIP-801)."""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import Message, array, binary, int8, int32, int64, message, string, uuid


@message(kind="metadata", api_key=11, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UserScramCredentialRecord(Message):
    """A user has a password, for SASL/SCRAM."""

    name: str = string("0+")
    mechanism: int = int8("0+")
    salt: bytes = binary("0+")
    stored_key: bytes = binary("0+")
    server_key: bytes = binary("0+")
    iterations: int = int32("0+")


@message(kind="metadata", api_key=22, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class RemoveUserScramCredentialRecord(Message):
    """A user has it no longer."""

    name: str = string("0+")
    mechanism: int = int8("0+")


@message(kind="metadata", api_key=10, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class DelegationTokenRecord(Message):
    """A delegation token exists."""

    owner: str = string("0+")
    requester: str = string("0+")
    renewers: tuple[str, ...] = array("string", "0+")
    issue_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    expiration_timestamp: int = int64("0+")
    token_id: str = string("0+")


@message(kind="metadata", api_key=26, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class RemoveDelegationTokenRecord(Message):
    """It does no longer."""

    token_id: str = string("0+")


@message(kind="metadata", api_key=18, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AccessControlEntryRecord(Message):
    """A rule of access exists."""

    id: UUID = uuid("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("0+")
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


@message(kind="metadata", api_key=19, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class RemoveAccessControlEntryRecord(Message):
    """It does no longer."""

    id: UUID = uuid("0+")
