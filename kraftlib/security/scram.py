"""SCRAM: a client and a server prove to each other that they know one password, and neither sends it.

    client-first   n,,n=USER,r=NONCE
    server-first   r=NONCE+NONCE,s=SALT,i=ITERATIONS
    client-final   c=biws,r=NONCE+NONCE,p=PROOF
    server-final   v=SIGNATURE

The server keeps a `ScramVerifier`: it serves to check a password, and not to log in. Both sides are state machines over
tokens without a socket or a clock. A token costs no more than `TOKEN_MAX` bytes and `ITERATIONS_MAX` rounds, and a
malformed one raises ScramError.

A name and a password are their UTF-8 bytes, as in Kafka: SASLprep (RFC 4013) is not applied, which makes no difference
to ASCII. There is no channel binding, as in Kafka: SCRAM says who opened a connection, and only TLS keeps it theirs.

Source: RFC 5802, RFC 7677; Kafka's `ScramSaslServer` and `ScramSaslClient` (KIP-84).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final

import attrs

from kraftlib.frozen import immutable
from kraftlib.security.sasl import NAME_MAX

TOKEN_MAX: Final = 64 * 1024
"""The largest token, in bytes."""

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 1_000_000
"""The rounds of PBKDF2 that are accepted. Below the first, RFC 7677 calls it unsafe; beyond the second, a server that
has proved nothing yet would cost a client seconds."""

NONCE_MAX: Final = 1_024
SALT_MAX: Final = 1_024

_GS2_HEADERS: Final = ("n,,", "y,,")
"""No channel binding, and no wish to act as another user."""


class ScramError(Exception):
    """The token is malformed, or the proof in it is wrong. The message is for the log of this side only."""


@immutable(kw_only=True)
class Keys:
    """The keys that a server keeps of one password."""

    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)


@immutable(kw_only=True)
class ScramVerifier:
    """The data that a server keeps of a user. Several `keys`, of one salt, are several passwords: any of them does."""

    salt: bytes = attrs.field(repr=False)
    iterations: int
    keys: tuple[Keys, ...] = attrs.field(repr=False)


def salted_password(digest: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return Hi(password, salt, iterations): milliseconds of work. `digest` is a name of hashlib, such as `sha512`."""
    return hashlib.pbkdf2_hmac(digest, password, salt, iterations)


def keys_of(digest: str, salted: bytes) -> Keys:
    """Return the keys that a salted password makes."""
    client_key = hmac.digest(salted, b"Client Key", digest)
    return Keys(
        stored_key=hashlib.new(digest, client_key).digest(), server_key=hmac.digest(salted, b"Server Key", digest)
    )


def make_verifier(
    digest: str, *passwords: bytes, salt: bytes | None = None, iterations: int = ITERATIONS_MIN
) -> ScramVerifier:
    """Return a verifier that any of these passwords satisfies, with a new salt unless one is given."""
    salt = secrets.token_bytes(24) if salt is None else salt
    keys = tuple(keys_of(digest, salted_password(digest, each, salt, iterations)) for each in passwords)
    return ScramVerifier(salt=salt, iterations=iterations, keys=keys)


Salted = Callable[[str, bytes, bytes, int], bytes]
"""As `salted_password`: a client passes one that remembers."""


class ScramClient:
    """The side that connects: `first`, then `final` with the server's first token, then `check` with its last."""

    def __init__(
        self, digest: str, username: str, password: bytes, *, nonce: str = "", salted: Salted = salted_password
    ) -> None:
        self._digest: Final = digest
        self._password: Final = password
        self._salted: Final = salted
        self._nonce: Final = nonce or new_nonce()
        self._first_bare: Final = f"n={_escape(username)},r={self._nonce}"
        self._expected: bytes | None = None

    def first(self) -> bytes:
        """Return the first token."""
        return f"{_GS2_HEADERS[0]}{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the token that proves that we know the password; milliseconds of work for a salt that is new.

        Raises: ScramError, if the token is none, is of another exchange, or asks for too few or too many rounds.
        """
        text = _text(server_first)
        attributes = _attributes(text, "r", "s", "i")
        nonce, salt = attributes["r"], _from_base64(attributes["s"], SALT_MAX)
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or len(nonce) > NONCE_MAX:
            raise ScramError("the server's nonce does not continue ours")
        iterations = _iterations(attributes["i"])
        salted = self._salted(self._digest, self._password, salt, iterations)
        without_proof = f"c={_base64(_GS2_HEADERS[0].encode())},r={nonce}"
        signed = f"{self._first_bare},{text},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), signed, self._digest)
        server_key = hmac.digest(salted, b"Server Key", self._digest)
        self._expected = hmac.digest(server_key, signed, self._digest)
        return f"{without_proof},p={_base64(_xor(client_key, signature))}".encode()

    def check(self, server_final: bytes) -> None:
        """Take the server's proof that it keeps a verifier of this user. Raises: ScramError, if it is none."""
        text = _text(server_final)
        if text.startswith("e="):
            raise ScramError(f"the server says {text[2:66]!r}")
        signature = _from_base64(_attributes(text, "v")["v"], SALT_MAX)
        if self._expected is None or not hmac.compare_digest(signature, self._expected):
            raise ScramError("the server does not know the password either")


class ScramServer:
    """The side that accepts: `first` with the client's first token, then `final` with its last.

    `verifier_of` returns the verifier of a user and whether there is such a user. For a name that is unknown it makes
    one up, always the same, so that a stranger sees no difference: the same tokens, the same work, the same end.
    """

    def __init__(
        self, digest: str, verifier_of: Callable[[str], tuple[ScramVerifier, bool]], *, nonce: str = ""
    ) -> None:
        self.username = ""
        """The name that the client claims. It is proved by `final`, not before."""
        self._digest: Final = digest
        self._verifier_of: Final = verifier_of
        self._own_nonce: Final = nonce or new_nonce()
        self._known = False
        self._header = ""
        self._nonce = ""
        self._signed = ""
        self._verifier: ScramVerifier | None = None

    def first(self, client_first: bytes) -> bytes:
        """Return the salt and the rounds of this user. Raises: ScramError, if the token is no first token."""
        text = _text(client_first)
        self._header = _gs2_header(text)
        bare = text[len(self._header) :]
        attributes = _attributes(bare, "n", "r")
        self.username = _unescape(attributes["n"])
        if not attributes["r"] or len(attributes["r"]) > NONCE_MAX // 2:
            raise ScramError(f"a nonce of {len(attributes['r'])} characters")
        self._verifier, self._known = self._verifier_of(self.username)
        self._nonce = attributes["r"] + self._own_nonce
        answer = f"r={self._nonce},s={_base64(self._verifier.salt)},i={self._verifier.iterations}"
        self._signed = f"{bare},{answer}"
        return answer.encode()

    def final(self, client_final: bytes) -> bytes:
        """Return our own proof to a client whose proof is right. Raises: ScramError, if it is not, or is none."""
        verifier, self._verifier = self._verifier, None  # one guess for each nonce
        if verifier is None:
            raise ScramError("a proof comes after a first token, and once")
        text = _text(client_final)
        without_proof, _, proof_text = text.rpartition(",p=")
        attributes = _attributes(without_proof, "c", "r")
        proof = _from_base64(proof_text, SALT_MAX)
        if _from_base64(attributes["c"], SALT_MAX) != self._header.encode():
            raise ScramError("the channel binding is not that of the first token")
        if not hmac.compare_digest(attributes["r"].encode(), self._nonce.encode()):
            raise ScramError("the nonce is that of another exchange")
        signed = f"{self._signed},{without_proof}".encode()
        server_key = self._matching(verifier, signed, proof)
        if server_key is None:
            raise ScramError("wrong password, or no such user")
        return f"v={_base64(hmac.digest(server_key, signed, self._digest))}".encode()

    def _matching(self, verifier: ScramVerifier, signed: bytes, proof: bytes) -> bytes | None:
        """Return the server key of the password that the client has proved to know; None if it knows none."""
        found = None
        for keys in verifier.keys:
            signature = hmac.digest(keys.stored_key, signed, self._digest)
            # A proof of another length is compared all the same, and is wrong.
            client_key = _xor(proof.ljust(len(signature), b"\0")[: len(signature)], signature)
            is_right = hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), keys.stored_key)
            if is_right and self._known and len(proof) == len(signature):
                found = keys.server_key
        return found


def is_name(name: str) -> bool:
    """Whether a user may be called so: its name stands in log lines and in lists of principals."""
    return 0 < len(name) <= NAME_MAX and name.isprintable()


def new_nonce() -> str:
    """Return 192 bits of chance, as characters that a nonce may have."""
    return secrets.token_urlsafe(24)


# Tokens -------------------------------------------------------------------------------------------


def _text(token: bytes) -> str:
    if len(token) > TOKEN_MAX:
        raise ScramError(f"a token of {len(token)} bytes, at most {TOKEN_MAX} are allowed")
    try:
        text = bytes(token).decode()
    except UnicodeDecodeError:
        raise ScramError("a token that is no UTF-8") from None
    if "\0" in text:
        raise ScramError("a token with a zero byte")
    return text


def _gs2_header(text: str) -> str:
    """Return the header of a first token: `n,,`, also with our own name as the one to act as (`n,a=NAME,`)."""
    flag, _, rest = text.partition(",")
    authzid, comma, bare = rest.partition(",")
    name = bare.partition(",")[0]
    if flag not in ("n", "y") or not comma:
        raise ScramError("a first token without `n,,` or `y,,`: channel binding is not supported")
    if authzid and (not authzid.startswith("a=") or authzid[2:] != name.removeprefix("n=")):
        raise ScramError("a user may act as itself only")
    return f"{flag},{authzid},"


def _attributes(text: str, *wanted: str) -> dict[str, str]:
    """Return the attributes that a token begins with, in this order; optional extensions behind them are ignored."""
    parts = text.split(",", len(wanted))[: len(wanted)]
    found = {}
    for name, part in zip(wanted, parts, strict=False):
        if not part.startswith(f"{name}="):
            break
        found[name] = part[2:]
    if len(found) != len(wanted):
        raise ScramError(f"a token without {', '.join(wanted)}")
    return found


def _iterations(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(ITERATIONS_MAX))):
        raise ScramError("iterations that are no number")
    if not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        raise ScramError(f"{int(text)} iterations, allowed are {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return int(text)


def _escape(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescape(text: str) -> str:
    name = text.replace("=2C", ",").replace("=3D", "=")
    if not is_name(name) or _escape(name) != text:
        raise ScramError("a user name that is empty, too long, not printable, or not escaped")
    return name


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_base64(text: str, limit: int) -> bytes:
    try:
        data = base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("an attribute that is no base64") from None
    if not 0 < len(data) <= limit:
        raise ScramError(f"an attribute of {len(data)} bytes")
    return data


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")
