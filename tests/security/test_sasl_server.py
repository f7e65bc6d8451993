"""The accepting side of SASL: what may come in which order, and that nothing but the password opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.codec.declarations import Message
from kraftlib.security.before_login import FRAME_MAX_BYTES
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.sasl_server import TRIES_MAX, VERSIONS_MAX, SaslServer, Step
from kraftlib.security.sasl_users import load_users, user_line
from kraftlib.security.scram import ScramClient, make_verifier
from kraftlib.wire.apis import APIS, ApiKey, ErrorCode
from kraftlib.wire.frames import decode_response, encode_request
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from kraftlib.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftlib.wire.messages.sasl_handshake import SaslHandshakeRequest

OPTIONS: dict[str, Any] = {"users": {"replica-2": "right"}, "username": "replica-1", "password": "own"}
SCRAM = load_users(SaslConfig(**OPTIONS), 1, encrypted=False, insecure=False)
BOTH = load_users(SaslConfig(accept=("SCRAM-SHA-512", "PLAIN"), **OPTIONS), 1, encrypted=True, insecure=False)


def frame(message: Message, version: int | None = None) -> bytes:
    version = APIS[message.api_key].versions.last if version is None else version
    return encode_request(message, version=version, correlation_id=7, client_id="c")


def told(step: Step, key: ApiKey, version: int | None = None) -> Any:
    assert step.answer is not None
    correlation_id, message = decode_response(
        step.answer, api_key=key, version=APIS[key].versions.last if version is None else version
    )
    assert correlation_id == 7
    return message


def shake(server: SaslServer, mechanism: str = "SCRAM-SHA-512") -> Step:
    return server.receive(frame(SaslHandshakeRequest(mechanism=mechanism)))


def give(server: SaslServer, token: bytes, version: int = 2) -> Step:
    step = server.receive(frame(SaslAuthenticateRequest(auth_bytes=token), version))
    return step if step.check is None else step.check.then(step.check.run())


def log_in(server: SaslServer, user: str, password: bytes, version: int = 2) -> Step:
    """Do what a client of SCRAM does; return the last step."""
    client = ScramClient("sha512", user, password)
    assert shake(server).failure is None
    first = give(server, client.first(), version)
    if first.failure is not None:
        return first
    token = told(first, ApiKey.SASL_AUTHENTICATE, version).auth_bytes
    step = give(server, client.final(token), version)
    if step.failure is None:
        client.check(told(step, ApiKey.SASL_AUTHENTICATE, version).auth_bytes)
    return step


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_user_with_the_password_is_known_after_two_tokens(version: int) -> None:
    step = log_in(SaslServer(SCRAM), "replica-2", b"right", version)
    assert (step.user, step.failure, step.close) == ("replica-2", None, False)
    assert told(step, ApiKey.SASL_AUTHENTICATE, version).session_lifetime_ms == 0


def test_the_handshake_names_what_is_accepted() -> None:
    answer = told(shake(SaslServer(BOTH)), ApiKey.SASL_HANDSHAKE)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.NONE, ("SCRAM-SHA-512", "PLAIN"))


def test_plain_is_one_token() -> None:
    server = SaslServer(BOTH)
    shake(server, "PLAIN")
    assert give(server, b"\0replica-2\0right").user == "replica-2"


@pytest.mark.parametrize(
    "token",
    [
        b"\0replica-2\0wrong",
        b"\0stranger\0right",
        b"replica-1\0replica-2\0right",
        b"\0replica-2",
        b"\0\0right",
        b"\0replica-2\0right\0",
        b"\0\xff\0right",
        b"\0replica-2\nforged\0right",
        b"\0" + b"x" * 256 + b"\0right",
        b"",
    ],
)
def test_a_plain_token_that_is_not_right_is_a_failure(token: bytes) -> None:
    server = SaslServer(BOTH)
    shake(server, "PLAIN")
    step = give(server, token)
    assert (step.user, step.close) == (None, False)
    assert told(step, ApiKey.SASL_AUTHENTICATE).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_password_that_is_not_looked_at_is_a_failure_like_a_wrong_one() -> None:
    server = SaslServer(BOTH)
    shake(server, "PLAIN")
    step = server.receive(frame(SaslAuthenticateRequest(auth_bytes=b"\0replica-2\0right"), 2))
    assert step.check is not None
    refused = step.check.then(None)
    assert refused.answer == step.check.then(False).answer
    assert "too many wrong passwords" in (refused.failure or "")


@pytest.mark.parametrize("own", [{"users": {"replica-1": "right"}}, {"users": {"replica-1": "right", "ann": "x"}}])
def test_nobody_logs_in_as_the_replica_itself(own: dict[str, Any]) -> None:
    """A server that replica 1 dials passes its login on, to replica 1."""
    config = SaslConfig(accept=("SCRAM-SHA-512", "PLAIN"), password="right", **own)
    itself, another = (load_users(config, number, encrypted=True, insecure=False) for number in (1, 2))
    assert "is the user of this replica itself" in (log_in(SaslServer(itself), "replica-1", b"right").failure or "")
    assert log_in(SaslServer(another), "replica-1", b"right").user == "replica-1"
    server = SaslServer(itself)
    shake(server, "PLAIN")
    assert "is the user of this replica itself" in (give(server, b"\0replica-1\0right").failure or "")


def test_a_wrong_password_and_an_unknown_user_get_the_same_answers() -> None:
    wrong, unknown = (log_in(SaslServer(SCRAM), "replica-2", b"wrong"), log_in(SaslServer(SCRAM), "stranger", b"right"))
    assert wrong == unknown
    assert told(wrong, ApiKey.SASL_AUTHENTICATE).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_three_tries_are_the_last() -> None:
    server = SaslServer(SCRAM)
    steps = [log_in(server, "replica-2", b"wrong") for _ in range(TRIES_MAX)]
    assert [step.close for step in steps] == [False, False, True]

    server = SaslServer(SCRAM)
    log_in(server, "replica-2", b"wrong")
    assert log_in(server, "replica-2", b"right").user == "replica-2"


def test_another_mechanism_is_a_failed_try() -> None:
    server = SaslServer(SCRAM)
    steps = [shake(server, name) for name in ("PLAIN", "SCRAM-SHA-256", "x" * 30_000)]
    assert [step.close for step in steps] == [False, False, True]
    answer = told(steps[0], ApiKey.SASL_HANDSHAKE)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ("SCRAM-SHA-512",))
    assert len(steps[2].failure or "") < 200


def test_a_last_token_that_is_sent_again_opens_nothing() -> None:
    """Neither on its own connection nor on another one."""
    client, server = ScramClient("sha512", "replica-2", b"right"), SaslServer(SCRAM)
    shake(server)
    final = client.final(told(give(server, client.first()), ApiKey.SASL_AUTHENTICATE).auth_bytes)
    assert give(server, final).user == "replica-2"

    for tokens in ([final], [client.first(), final]):
        other = SaslServer(SCRAM)
        shake(other)
        steps = [give(other, token) for token in tokens]
        assert steps[-1].failure is not None
        assert steps[-1].user is None


@pytest.mark.parametrize("change", ["removed", "another password"])
def test_a_login_that_is_overtaken_by_a_change_of_its_user_is_refused(change: str, tmp_path: Path) -> None:
    """The peer says how long its login lasts, so the old password would open for minutes after its end."""
    path = tmp_path / "users"
    path.touch(mode=0o600)

    def write(**passwords: bytes) -> None:
        lines = [user_line(name, "SCRAM-SHA-512", make_verifier("sha512", each)) for name, each in passwords.items()]
        path.write_text("\n".join(lines))

    write(ann=b"old", ben=b"other")
    config = SaslConfig(accept=("SCRAM-SHA-512", "PLAIN"), password="own", users_file=path)
    users = load_users(config, 1, encrypted=True, insecure=False)
    scram, plain, client = SaslServer(users), SaslServer(users), ScramClient("sha512", "ann", b"old")
    shake(scram)
    token = told(give(scram, client.first()), ApiKey.SASL_AUTHENTICATE).auth_bytes
    shake(plain, "PLAIN")
    check = plain.receive(frame(SaslAuthenticateRequest(auth_bytes=b"\0ann\0old"), 2)).check
    assert check is not None
    assert check.run()

    write(**{"ben": b"other"} if change == "removed" else {"ann": b"new", "ben": b"other"})
    assert users.look() is None

    for step in (give(scram, client.final(token)), check.then(True)):
        assert step.user is None
        assert told(step, ApiKey.SASL_AUTHENTICATE).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "'ann' was removed, or has another password, while it logged in" in (step.failure or "")


def test_versions_may_be_asked_for_before_and_not_for_ever() -> None:
    server, question = (
        SaslServer(SCRAM),
        frame(ApiVersionsRequest(client_software_name="a", client_software_version="1")),
    )
    assert [server.receive(question) for _ in range(VERSIONS_MAX)] == [Step(pass_on=True)] * VERSIONS_MAX
    assert server.receive(question).close


def test_versions_of_the_future_are_passed_on_to_be_refused() -> None:
    assert SaslServer(SCRAM).receive(b"\0\x12\0\x63" + bytes(8)) == Step(pass_on=True)


@pytest.mark.parametrize("key", [key for key in ApiKey if key not in (17, 18, 36)], ids=lambda key: key.name)
def test_nothing_else_is_served_before(key: ApiKey) -> None:
    for prepare in (lambda _: None, shake):
        server = SaslServer(SCRAM)
        prepare(server)
        step = server.receive(frame(APIS[key].request()))
        assert (step.close, step.answer, step.user, step.pass_on) == (True, None, None, False)
        assert f"asked for API {int(key)} before" in (step.failure or "")


def test_what_comes_out_of_order_closes() -> None:
    assert give(SaslServer(SCRAM), b"n,,n=replica-2,r=abc").close
    server = SaslServer(SCRAM)
    shake(server)
    assert shake(server).close
    server = SaslServer(SCRAM)
    shake(server)
    assert server.receive(frame(ApiVersionsRequest())).close
    step = SaslServer(SCRAM).receive(frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 0))
    assert (step.close, step.failure) == (True, "SASL_HANDSHAKE version 0 came out of order")


@pytest.mark.parametrize("token", [b"", b"x" * (FRAME_MAX_BYTES + 1), b"\xff", b"n,,n=replica-2"])
def test_a_token_that_is_none_is_a_failure(token: bytes) -> None:
    server = SaslServer(SCRAM)
    shake(server)
    step = give(server, token)
    assert (step.user, step.close) == (None, False)
    assert step.failure is not None


@settings(max_examples=300, deadline=None)
@given(
    frames=st.lists(
        st.binary(max_size=40)
        | st.sampled_from([b"\0\x11\0\1", b"\0\x24\0\2"]).flatmap(
            lambda head: st.binary(max_size=30).map(lambda rest: head + rest)
        ),
        max_size=4,
    )
)
def test_whatever_comes_nobody_is_let_in_and_nothing_raises(frames: list[bytes]) -> None:
    server = SaslServer(BOTH)
    for each in frames:
        step = server.receive(each)
        assert step.user is None
        if step.close:
            break
