"""Delegation tokens of a controller of Kafka and of ours: the same answers to the same users, bare and in envelopes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kraftlib.metadata.security_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from kraftlib.wire.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.interop.asked import HOUR_MS, Asked, secret_of
from tests.interop.lab import Lab
from tests.interop.test_admin_requests import controllers

Create = CreateDelegationTokenRequest


@pytest.fixture
def both(lab: Lab) -> Iterator[tuple[Asked, Asked]]:
    yield from controllers(lab, elr=1)


def as_user(there: Asked, name: str, request: Any, *, by_token: bool = False) -> Any:
    """Ask what a broker forwards for a user."""
    return there.forwarded(request, user=name, by_token=by_token)


def told(there: Asked) -> list[tuple[Any, ...]]:
    """Return what a controller says to a row of requests, and writes; of times and ids what they are to each other."""
    found: list[tuple[Any, ...]] = []

    def note(answer: Any, *, at: int = 0) -> Any:
        expiry = answer.expiry_timestamp_ms
        lived = round((expiry - at) / HOUR_MS, 1) if at and expiry > 0 else expiry
        records = [
            (type(one).__name__, getattr(one, "owner", ""), getattr(one, "requester", ""), getattr(one, "renewers", ()))
            for one in there.written()
            if isinstance(one, DelegationTokenRecord | RemoveDelegationTokenRecord)
        ]
        found.append((answer.error_code, lived, records))
        return answer

    def created(name: str, request: Create, **how: Any) -> Any:
        made = as_user(there, name, request, **how)
        note(made, at=made.issue_timestamp_ms)
        names = (made.principal_type, made.principal_name, made.token_requester_principal_name)
        found.append((*names, round((made.max_timestamp_ms - made.issue_timestamp_ms) / HOUR_MS, 1)))
        assert made.error_code or made.hmac == secret_of(made.token_id)
        return made

    bob = Create.CreatableRenewers(principal_type="User", principal_name="bob")
    group = Create.CreatableRenewers(principal_type="Group", principal_name="bob")
    note(there.ask(Create(max_lifetime_ms=-1)))  # nobody knows who asks
    token = created("ann", Create(renewers=(bob,), max_lifetime_ms=-1))
    created("ann", Create(max_lifetime_ms=2 * HOUR_MS))
    created("ann", Create(max_lifetime_ms=0), by_token=True)
    created("ann", Create(renewers=(group,), max_lifetime_ms=HOUR_MS))
    created("ann", Create(owner_principal_type="User", owner_principal_name="bob", max_lifetime_ms=HOUR_MS))
    for_ann = created("ANONYMOUS", Create(owner_principal_type="User", owner_principal_name="ann", max_lifetime_ms=-1))
    for secret in (token.hmac, for_ann.hmac, b"", b"x" * 64):
        for name in ("ann", "bob", "carl", "ANONYMOUS"):
            for period in (HOUR_MS, -1, 0, 10**12):
                note(
                    as_user(there, name, RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period)),
                    at=token.issue_timestamp_ms,
                )
            for period in (HOUR_MS, 10**12):
                request = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period)
                note(as_user(there, name, request), at=token.issue_timestamp_ms)
        note(there.ask(RenewDelegationTokenRequest(hmac=secret, renew_period_ms=1)))
        note(there.ask(ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=1)))
    # Afterwards Kafka's controller knows the token until its image has followed the log.
    request = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-5)
    note(as_user(there, "bob", request), at=token.issue_timestamp_ms)
    return found


@pytest.mark.since("4.3")
def test_a_controller_of_kafka_and_ours_give_out_the_same_tokens(both: tuple[Asked, Asked]) -> None:
    kafka, ours = map(told, both)
    assert len(kafka) > 100
    assert ours == kafka
