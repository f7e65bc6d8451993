from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest

from kraftlib.controller import delegation_tokens
from kraftlib.controller.context import NOBODY, Caller
from kraftlib.controller.features import METADATA_VERSION
from kraftlib.wire.apis import ApiKey, ErrorCode
from kraftlib.wire.frames import decode_response, encode_response
from kraftlib.wire.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.controller.world import WALL_MS, World, picture, refolded

KEY = "the key"
DAY_MS = 86_400_000
ANN = Caller(principal="User:ann", may_have_tokens=True)
BOB = Caller(principal="User:bob", may_have_tokens=True)
ADMIN = Caller(principal="User:root", may_have_tokens=True, is_admin=True)


def world_with_tokens(**config: Any) -> World:
    return World(delegation_token_secret_key=KEY, leader_imbalance_check_interval_ms=0, **config)


def create(world: World, caller: Caller = ANN, *renewers: str, owner: str | None = None, life_ms: int = -1) -> Any:
    row = CreateDelegationTokenRequest.CreatableRenewers
    rows = tuple(row(principal_type="User", principal_name=name) for name in renewers)
    request = CreateDelegationTokenRequest(
        owner_principal_type="User" if owner else None,
        owner_principal_name=owner,
        renewers=rows,
        max_lifetime_ms=life_ms,
    )
    return world.ask(request, caller=caller)


def renew(world: World, secret: bytes, caller: Caller = ANN, *, period_ms: int = -1) -> Any:
    return world.ask(RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms), caller=caller)


def expire(world: World, secret: bytes, caller: Caller = ANN, *, period_ms: int = -1) -> Any:
    return world.ask(ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms), caller=caller)


def test_a_token_is_made_renewed_and_ended_and_its_secret_is_not_in_the_log() -> None:
    world = world_with_tokens()
    now = WALL_MS + world.now_ms
    made = create(world, ANN, "bob")
    assert made.error_code == 0
    assert made.hmac == hmac.digest(KEY.encode(), made.token_id.encode(), hashlib.sha512)
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms) == (now, now + DAY_MS)
    assert made.max_timestamp_ms == now + 7 * DAY_MS
    (token,) = world.state.keyed.delegation_tokens()
    assert (token.owner, token.requester, token.renewers) == ("User:ann", "User:ann", ("User:bob",))
    assert made.hmac.hex() not in repr(world.log)

    world.now_ms += DAY_MS // 2
    assert renew(world, made.hmac, BOB, period_ms=100).expiry_timestamp_ms == now + DAY_MS // 2 + 100
    assert renew(world, made.hmac, BOB).expiry_timestamp_ms == now + DAY_MS // 2 + DAY_MS
    assert expire(world, made.hmac, period_ms=30 * DAY_MS).expiry_timestamp_ms == made.max_timestamp_ms
    assert expire(world, made.hmac, period_ms=-1).expiry_timestamp_ms == WALL_MS + world.now_ms
    assert renew(world, made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert picture(refolded(world)) == picture(world.state)


def test_who_may_ask_for_what() -> None:
    world = world_with_tokens()
    assert create(world, NOBODY).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert create(world, ANN, owner="bob").error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    made = create(world, ADMIN, owner="ann")
    assert (made.principal_name, made.token_requester_principal_name) == ("ann", "root")
    for ask in (renew, expire):
        assert ask(world, made.hmac, BOB).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert ask(world, b"x" * 64).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert ask(world, made.hmac, NOBODY).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert ask(world, made.hmac, ANN, period_ms=5).error_code == 0


def test_nobody_fills_the_log_with_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody may have tokens: neither one of them is large, nor are there endless ones of one owner."""
    monkeypatch.setattr(delegation_tokens, "TOKENS_MAX", 3)
    world = world_with_tokens()
    for renewers in (["r" * 4_096], ["r" * 10] * 400, [""] * 900):
        before = len(world.log)
        assert create(world, ANN, *renewers).error_code == ErrorCode.POLICY_VIOLATION
        assert len(world.log) == before
    assert create(world, ADMIN, owner="x" * 4_100).error_code == ErrorCode.POLICY_VIOLATION
    made = [create(world, ANN, *["r" * 100] * 30) for _ in range(3)]
    assert [one.error_code for one in made] == [0, 0, 0]
    assert create(world).error_code == ErrorCode.POLICY_VIOLATION
    assert create(world, BOB).error_code == 0
    assert renew(world, made[0].hmac).error_code == 0, "that is no further one"
    assert expire(world, made[0].hmac, period_ms=-1).error_code == 0
    assert create(world).error_code == 0


@pytest.mark.parametrize(
    ("world", "code"),
    [
        (World(), ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
        (World(levels={METADATA_VERSION: 13}, delegation_token_secret_key=KEY), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_cluster_may_have_no_tokens(world: World, code: ErrorCode) -> None:
    before = len(world.log)
    assert create(world).error_code == code
    assert len(world.log) == before


def test_tokens_whose_time_is_over_are_of_no_use_and_go() -> None:
    world = world_with_tokens(delegation_token_expiry_check_interval_ms=1_000)
    short, long = create(world, life_ms=500), create(world)
    world.now_ms += 999
    assert renew(world, short.hmac).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    world.tick()
    assert len(list(world.state.keyed.delegation_tokens())) == 2
    world.now_ms += 1
    world.tick()
    assert [token.token_id for token in world.state.keyed.delegation_tokens()] == [long.token_id]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_answer_names_who_has_asked_where_its_version_has_a_place_for_that(version: int) -> None:
    answer: Any = world_with_tokens().ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), version=version, caller=ANN)
    frame = encode_response(answer, version=version, correlation_id=1)
    _, told = decode_response(frame, api_key=ApiKey.CREATE_DELEGATION_TOKEN, version=version)
    assert (told.error_code, told.principal_name) == (0, "ann")
    assert told.token_requester_principal_name == ("ann" if version >= 3 else "")


def test_a_token_whose_time_is_over_can_still_be_ended_by_its_owner_alone() -> None:
    world = world_with_tokens()
    token = create(world, life_ms=1_000)
    world.now_ms += 1_001
    assert expire(world, token.hmac, BOB).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(world, token.hmac, BOB).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expire(world, token.hmac, period_ms=5).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expire(world, token.hmac).error_code == 0
    assert list(world.state.keyed.delegation_tokens()) == []
