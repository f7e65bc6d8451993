"""SCRAM as state machines: the vectors of the RFCs, and that nothing but the password opens."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.security import scram
from kraftlib.security.scram import ScramClient, ScramError, ScramServer, ScramVerifier, make_verifier

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
PASSWORDS = st.binary(min_size=1, max_size=40)
NAMES = st.text(st.characters(exclude_categories=["Cs"]).filter(str.isprintable), min_size=1, max_size=40)
DIGESTS = ("sha256", "sha512")


def knows(name: str, verifier: ScramVerifier) -> Callable[[str], tuple[ScramVerifier, bool]]:
    return lambda asked: (verifier, asked == name)


def exchange(client: ScramClient, server: ScramServer) -> None:
    client.check(server.final(client.final(server.first(client.first()))))


@pytest.mark.parametrize(
    ("digest", "nonces", "salt", "first", "server_first", "final", "server_final"),
    [
        pytest.param(
            "sha1",
            ("fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j"),
            base64.b64decode("QSXCR+Q6sek8bf92"),
            b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
            b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
            id="RFC 5802, section 5",
        ),
        pytest.param(
            "sha256",
            (CLIENT_NONCE, SERVER_NONCE),
            SALT,
            b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
            id="RFC 7677, section 3",
        ),
    ],
)
def test_both_sides_say_what_the_rfcs_say(
    digest: str,
    nonces: tuple[str, str],
    salt: bytes,
    first: bytes,
    server_first: bytes,
    final: bytes,
    server_final: bytes,
) -> None:
    client = ScramClient(digest, "user", b"pencil", nonce=nonces[0])
    server = ScramServer(digest, knows("user", make_verifier(digest, b"pencil", salt=salt)), nonce=nonces[1])

    assert client.first() == first
    assert server.first(first) == server_first
    assert client.final(server_first) == final
    assert server.final(final) == server_final
    assert server.username == "user"
    client.check(server_final)


@pytest.mark.parametrize("digest", DIGESTS)
@settings(max_examples=15, deadline=None)
@given(name=NAMES, password=PASSWORDS, other=PASSWORDS)
def test_the_password_opens_and_another_does_not(digest: str, name: str, password: bytes, other: bytes) -> None:
    verifier = make_verifier(digest, password)
    server = ScramServer(digest, knows(name, verifier))
    exchange(ScramClient(digest, name, password), server)
    assert server.username == name

    if hmac.compare_digest(other.ljust(128, b"\0"), password.ljust(128, b"\0")):
        return  # HMAC pads keys with zero bytes: these two are one password
    with pytest.raises(ScramError, match="wrong password"):
        exchange(ScramClient(digest, name, other), ScramServer(digest, knows(name, verifier)))


def test_an_unknown_user_ends_as_a_wrong_password_does_even_with_the_right_proof() -> None:
    verifier = make_verifier("sha512", b"right")
    with pytest.raises(ScramError) as unknown:
        exchange(ScramClient("sha512", "stranger", b"right"), ScramServer("sha512", knows("user", verifier)))
    with pytest.raises(ScramError) as wrong:
        exchange(ScramClient("sha512", "user", b"wrong"), ScramServer("sha512", knows("user", verifier)))
    assert str(unknown.value) == str(wrong.value)


def test_any_of_several_passwords_of_one_salt_opens() -> None:
    """So that a secret is replaced while the replicas are restarted one by one."""
    verifier = make_verifier("sha512", b"new", b"old")
    for password in (b"new", b"old"):
        exchange(ScramClient("sha512", "user", password), ScramServer("sha512", knows("user", verifier)))
    with pytest.raises(ScramError):
        exchange(ScramClient("sha512", "user", b"older"), ScramServer("sha512", knows("user", verifier)))


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    client = ScramClient("sha512", "user", b"right")
    server = ScramServer("sha512", knows("user", make_verifier("sha512", b"other")))
    client.final(server.first(client.first()))

    for claim in (b"v=" + base64.b64encode(bytes(64)), b"v=", b"", b"v=AAAA", b"e=other-error"):
        with pytest.raises(ScramError):
            client.check(claim)
    with pytest.raises(ScramError):
        ScramClient("sha512", "user", b"right").check(b"v=" + base64.b64encode(bytes(64)))


def test_a_proof_opens_once_and_in_its_own_exchange_only() -> None:
    verifier = make_verifier("sha512", b"right")
    client, server = ScramClient("sha512", "user", b"right"), ScramServer("sha512", knows("user", verifier))
    proof = client.final(server.first(client.first()))
    server.final(proof)

    with pytest.raises(ScramError, match="once"):
        server.final(proof)
    later = ScramServer("sha512", knows("user", verifier))
    later.first(client.first())
    with pytest.raises(ScramError, match="another exchange"):
        later.final(proof)
    with pytest.raises(ScramError, match="once"):
        ScramServer("sha512", knows("user", verifier)).final(proof)


VERIFIER = make_verifier("sha512", b"right")


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_proof_with_any_byte_changed_does_not_open(data: st.DataObject) -> None:
    client, server = ScramClient("sha512", "user", b"right"), ScramServer("sha512", knows("user", VERIFIER))
    proof = bytearray(client.final(server.first(client.first())))
    position = data.draw(st.integers(0, len(proof) - 1))
    changed = data.draw(st.integers(0, 255).filter(lambda value: value != proof[position]))
    decoded_before = base64.b64decode(bytes(proof).rpartition(b",p=")[2])
    proof[position] = changed
    try:
        server.final(bytes(proof))
    except ScramError:
        return
    # The last character before the padding has bits that base64 does not use.
    assert base64.b64decode(bytes(proof).rpartition(b",p=")[2]) == decoded_before


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=60)
    | st.sampled_from([b"n,,n=user,r=abc", b"r=abc,s=AAAA,i=4096", b"c=biws,r=abc,p=AAAA", b"v=AAAA"]).flatmap(
        lambda token: st.integers(0, len(token)).map(lambda end: token[:end])
    )
)
def test_whatever_comes_is_refused_in_one_way(token: bytes) -> None:
    """Nothing but ScramError: a token of a stranger never raises into the caller."""
    for take in (
        ScramClient("sha512", "user", b"right", nonce="abc").final,
        ScramClient("sha512", "user", b"right").check,
        ScramServer("sha512", knows("user", VERIFIER)).first,
        ScramServer("sha512", knows("user", VERIFIER)).final,
    ):
        try:
            take(token)
        except ScramError:
            continue
        assert take.__name__ == "first"
        assert token.startswith((b"n,", b"y,"))


@pytest.mark.parametrize(
    "token",
    [
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=root,n=user,r=abc",
        b"n,,m=must,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user",
        b"n,,n=us\0er,r=abc",
        b"n,,n=us\ner,r=abc",
        b"n,,n=us\x1b[2Jer,r=abc",
        b"n,,n=" + b"x" * 256 + b",r=abc",
        b"n,,n=user,r=" + b"x" * scram.NONCE_MAX,
        b"n,,n=user,r=abc," + b"x" * scram.TOKEN_MAX,
        b"\xff\xfe",
    ],
)
def test_a_first_token_that_asks_for_more_than_a_login_is_refused(token: bytes) -> None:
    with pytest.raises(ScramError):
        ScramServer("sha512", knows("user", VERIFIER)).first(token)


def test_a_user_may_act_as_itself_and_say_so() -> None:
    """Kafka's client can be told to name the user twice."""
    server = ScramServer("sha512", knows("user", VERIFIER), nonce="xyz")
    assert server.first(b"n,a=user,n=user,r=abc,tokenauth=true").startswith(b"r=abcxyz,")


@pytest.mark.parametrize(
    "token",
    [
        b"r=abc,s=AAAA,i=4096",
        b"r=other,s=AAAA,i=4096",
        b"r=abcdef,s=AAAA,i=4095",
        b"r=abcdef,s=AAAA,i=1000001",
        b"r=abcdef,s=AAAA,i=99999999999999999999",
        b"r=abcdef,s=AAAA,i=-5000",
        b"r=abcdef,s=AAAA,i=\xd9\xa4\xd9\xa0\xd9\xa9\xd9\xa6",
        b"r=abcdef,s=,i=4096",
        b"r=abcdef,s=!,i=4096",
        b"m=must,r=abcdef,s=AAAA,i=4096",
    ],
)
def test_a_server_cannot_make_a_client_work_for_ever_or_skip_the_work(token: bytes) -> None:
    def never(*_: object) -> bytes:
        raise AssertionError("the password was used")

    with pytest.raises(ScramError):
        ScramClient("sha512", "user", b"right", nonce="abc", salted=never).final(token)


def test_no_secret_stands_in_a_repr() -> None:
    shown = repr(make_verifier("sha512", b"right", salt=b"the salt of this"))
    assert "stored_key" not in shown
    assert "the salt" not in shown


def test_nonces_do_not_repeat() -> None:
    assert len({scram.new_nonce() for _ in range(1_000)}) == 1_000
