"""Delegation tokens: a principal lets others log in as itself, for a while (KIP-48, KIP-900).

The secret of a token is the HMAC of its id under the key that all controllers and brokers share, so that nothing secret
stands in the log.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import partial
from typing import Final

import attrs

from kraftlib.controller.access_rules import Operation, ResourceType
from kraftlib.controller.context import Context
from kraftlib.controller.results import RECORDS_MAX, Decision, RefusedError
from kraftlib.controller.versions import has_delegation_tokens
from kraftlib.metadata.security_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from kraftlib.types import uuid_text
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

USER: Final = "User"
NEVER: Final = -1
NAMES_MAX: Final = 4_096
"""Characters of the owner and the renewers of one token. Everybody may have tokens, and each renewal repeats them."""

TOKENS_MAX: Final = 10_000
"""Tokens of one owner at a time. Kafka has no such bounds."""

REQUESTER_SINCE: Final = 3
"""From this version on an answer names who has asked (KIP-373)."""

DEFAULT: Final = 0
"""A period that is not above this one stands for the period of the configuration."""


def create_delegation_token(context: Context, request: CreateDelegationTokenRequest, version: int) -> Decision:
    """Make a token for the caller, or for another owner on whose behalf the caller may make one."""
    requester_type, _, requester_name = context.caller.principal.partition(":")
    owner_type, owner_name = requester_type, requester_name
    if request.owner_principal_name:
        owner_type, owner_name = request.owner_principal_type or "", request.owner_principal_name
    answer = CreateDelegationTokenResponse(principal_type=owner_type, principal_name=owner_name)
    if version >= REQUESTER_SINCE:
        requester = {
            "token_requester_principal_type": requester_type,
            "token_requester_principal_name": requester_name,
        }
        answer = attrs.evolve(answer, **requester)  # type: ignore[arg-type]
    owner = f"{owner_type}:{owner_name}"
    try:
        _check_creation(context, request, owner)
    except RefusedError as refused:
        time = _no_time(refused)
        times = {"issue_timestamp_ms": time, "expiry_timestamp_ms": time, "max_timestamp_ms": time}
        return Decision(answer=attrs.evolve(answer, **{"error_code": refused.code, **times}))  # type: ignore[arg-type]
    now, config = context.wall_ms, context.config
    last = now + _period(request.max_lifetime_ms, config.delegation_token_max_lifetime_ms)
    record = DelegationTokenRecord(
        owner=owner,
        requester=context.caller.principal,
        renewers=tuple(f"{row.principal_type}:{row.principal_name}" for row in request.renewers),
        issue_timestamp=now,
        max_timestamp=last,
        expiration_timestamp=min(last, now + config.delegation_token_expiry_time_ms),
        token_id=uuid_text(context.new_uuid()),
    )
    answer = attrs.evolve(
        answer,
        issue_timestamp_ms=record.issue_timestamp,
        expiry_timestamp_ms=record.expiration_timestamp,
        max_timestamp_ms=record.max_timestamp,
        token_id=record.token_id,
        hmac=_secret(_key(context), record.token_id),
    )
    return Decision([record], answer)


_BEFORE_THE_CONTROLLER: Final = frozenset(
    {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED}
)
"""Refusals whose answers name no time."""


def _check_creation(context: Context, request: CreateDelegationTokenRequest, owner: str) -> None:
    caller = context.caller
    if not caller.may_have_tokens:
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if owner != caller.principal and not _may_for(context, owner):
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    _key(context)
    if not has_delegation_tokens(context.features.metadata_version):
        raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
    if any(row.principal_type != USER for row in request.renewers):
        raise RefusedError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    names = (owner, *(f"{USER}:{row.principal_name}" for row in request.renewers))
    if sum(map(len, names)) > NAMES_MAX or context.state.keyed.tokens.owners[owner] >= TOKENS_MAX:
        raise RefusedError(ErrorCode.POLICY_VIOLATION)


def _may_for(context: Context, owner: str) -> bool:
    if not context.config.standard_authorizer:
        return context.caller.is_admin
    return context.allows(Operation.CREATE_TOKENS, ResourceType.USER, owner)


def renew_delegation_token(context: Context, request: RenewDelegationTokenRequest, version: int) -> Decision:
    """Have a token live longer, but not beyond its last day."""
    try:
        token = _find(context, request.hmac)
        _check_time(context, token)
        _check_renewer(context, token)
    except RefusedError as refused:
        expiry = _no_time(refused)
        return Decision(answer=RenewDelegationTokenResponse(error_code=refused.code, expiry_timestamp_ms=expiry))
    period = _period(request.renew_period_ms, context.config.delegation_token_expiry_time_ms)
    expiry = min(token.max_timestamp, context.wall_ms + period)
    answer = RenewDelegationTokenResponse(expiry_timestamp_ms=expiry)
    return Decision([attrs.evolve(token, expiration_timestamp=expiry)], answer)


def expire_delegation_token(context: Context, request: ExpireDelegationTokenRequest, version: int) -> Decision:
    """Have a token end earlier, or at once."""
    period = request.expiry_time_period_ms
    try:
        token = _find(context, request.hmac)
        _check_renewer(context, token)
        if period >= 0:
            _check_time(context, token)
    except RefusedError as refused:
        expiry = _no_time(refused)
        return Decision(answer=ExpireDelegationTokenResponse(error_code=refused.code, expiry_timestamp_ms=expiry))
    if period < 0:
        gone = RemoveDelegationTokenRecord(token_id=token.token_id)
        return Decision([gone], ExpireDelegationTokenResponse(expiry_timestamp_ms=context.wall_ms))
    expiry = min(token.max_timestamp, context.wall_ms + period)
    answer = ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry)
    return Decision([attrs.evolve(token, expiration_timestamp=expiry)], answer)


def remove_expired_tokens(context: Context) -> Decision:
    """Remove the tokens whose time is over."""
    gone = [token for token in context.state.keyed.delegation_tokens() if _is_over(token, context.wall_ms)]
    return Decision([RemoveDelegationTokenRecord(token_id=token.token_id) for token in gone[:RECORDS_MAX]])


def _no_time(refused: RefusedError) -> int:
    return NEVER if refused.code in _BEFORE_THE_CONTROLLER else 0


def _period(wanted: int, longest: int) -> int:
    return min(wanted, longest) if wanted > DEFAULT else longest


def _is_over(token: DelegationTokenRecord, now_ms: int) -> bool:
    return min(token.max_timestamp, token.expiration_timestamp) < now_ms


def _key(context: Context) -> str:
    key = context.config.delegation_token_secret_key
    if key is None:
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return key


def _secret(key: str, token_id: str) -> bytes:
    return hmac.digest(key.encode(), token_id.encode(), hashlib.sha512)


def _find(context: Context, secret: bytes) -> DelegationTokenRecord:
    """Return the token of this secret. Raises: RefusedError."""
    caller = context.caller
    if not caller.may_have_tokens:
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    key = _key(context)
    token = context.state.keyed.tokens.of(bytes(secret), partial(_secret, key))
    if token is None:
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return token


def _check_time(context: Context, token: DelegationTokenRecord) -> None:
    if _is_over(token, context.wall_ms):
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _check_renewer(context: Context, token: DelegationTokenRecord) -> None:
    if context.caller.principal not in (token.owner, *token.renewers):
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
