"""Credentials of users; `tests/interop/test_admin_requests.py` has Kafka's controller do the same."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kraftlib.controller.versions import METADATA_VERSION
from kraftlib.security.scram import make_verifier, salted_password
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest as Request
from tests.controller.world import World, picture, refolded

SHA_256, SHA_512 = 1, 2


def new(name: str, *, mechanism: int = SHA_256, iterations: int = 4_096) -> Any:
    salted = salted_password({SHA_256: "sha256"}.get(mechanism, "sha512"), b"secret", b"salt", iterations)
    return Request.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def gone(name: str, *, mechanism: int = SHA_256) -> Any:
    return Request.ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(world: World, *, deletions: tuple[Any, ...] = (), upsertions: tuple[Any, ...] = ()) -> dict[str, int]:
    answer = world.ask(Request(deletions=deletions, upsertions=upsertions))
    return {row.user: row.error_code for row in answer.results}


def test_a_broker_can_check_the_password_of_what_was_stored() -> None:
    world = World()
    assert alter(world, upsertions=(new("ann"), new("bob", mechanism=SHA_512))) == {"ann": 0, "bob": 0}
    assert len(world.log[-1].stored_key) == 64  # type: ignore[attr-defined]
    stored: Any = world.log[-2]
    (keys,) = make_verifier("sha256", b"secret", salt=b"salt", iterations=4_096).keys
    assert (stored.stored_key, stored.server_key) == (keys.stored_key, keys.server_key)
    assert (stored.name, stored.salt, stored.iterations) == ("ann", b"salt", 4_096)
    assert alter(world, deletions=(gone("ann"), gone("bob"))) == {"ann": 0, "bob": ErrorCode.RESOURCE_NOT_FOUND}
    assert picture(refolded(world)) == picture(world.state)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (new(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (new("a", mechanism=9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (new("a", iterations=4_095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (new("a", iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (attrs.evolve(new("a"), salted_password=b""), ErrorCode.UNKNOWN_SERVER_ERROR),
        (attrs.evolve(new("a"), salted_password=b"", iterations=1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_a_credential_that_cannot_be_is_refused_alone(wrong: Any, code: ErrorCode) -> None:
    assert alter(World(), upsertions=(wrong, new("good"))) == {wrong.name: code, "good": 0}


def test_a_user_stands_once_in_a_request_whatever_is_asked() -> None:
    world = World()
    alter(world, upsertions=(new("ann"),))
    before = len(world.log)
    found = alter(world, deletions=(gone("ann"),), upsertions=(new("ann"), new("bob"), new("bob", mechanism=SHA_512)))
    assert found == dict.fromkeys(("ann", "bob"), ErrorCode.DUPLICATE_RESOURCE)
    assert len(world.log) == before


def test_a_log_of_an_old_release_has_no_credentials() -> None:
    world = World(levels={METADATA_VERSION: 10})
    assert alter(world, upsertions=(new("ann"),)) == {"ann": ErrorCode.UNSUPPORTED_VERSION}
