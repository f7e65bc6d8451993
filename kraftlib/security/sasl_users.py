"""Users and their passwords: the content of the files of `[sasl]`. The users file is read again when it has changed.

A line of a users file, as `kraftlib sasl-user` prints it, has what Kafka keeps of a user (`ScramCredentialUtils`):

    NAME SCRAM-SHA-512 salt=BASE64,stored_key=BASE64,server_key=BASE64,iterations=4096

Such a line serves to check passwords, and not to log in. PLAIN is checked with it, too.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import attrs

from kraftlib.errors import ConfigError
from kraftlib.frozen import define
from kraftlib.security.sasl import DIGESTS, NAME_MAX, PLAIN, REPLICA_PREFIX, SaslConfig
from kraftlib.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    Keys,
    ScramVerifier,
    keys_of,
    make_verifier,
    salted_password,
)
from kraftlib.security.signature import Signature, signature

logger = logging.getLogger(__name__)

FILE_MAX: Final = 1024 * 1024
SECRET_MIN: Final = 16
"""The shortest secret of a quorum, in characters: a listener to SCRAM in the clear can try passwords at home."""

PASSWORD_MAX: Final = 1_024
REMEMBERED_MAX: Final = 64
SALT_BYTES: Final = 24

PLAIN_ITERATIONS_MAX: Final = 12_288
"""The rounds of a user where PLAIN is accepted: below 20 ms of work for each password that a peer sends."""

Verifiers = dict[tuple[str, str], ScramVerifier]
"""By mechanism and user name."""

Login = tuple[ScramVerifier | None, ...]
"""All that a user may log in with."""


def read_private(path: Path) -> list[str]:
    """Return the lines of a file that holds a secret, without blank ones and comments.

    Raises: ConfigError, if it cannot be read, or if others than its owner may read it.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise ConfigError(f"{path} has mode {mode:o}, and others may read it: chmod 600 {path}")
            data = file.read(FILE_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}, which [sasl] names: {error.strerror or error}; name a file that this user may read"
        ) from error
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no text in UTF-8") from None
    if len(data) > FILE_MAX:
        raise ConfigError(f"{path} is longer than {FILE_MAX} bytes")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def user_line(name: str, mechanism: str, verifier: ScramVerifier) -> str:
    """Return the line of a user in a users file."""
    (keys,) = verifier.keys
    values = {"salt": verifier.salt, "stored_key": keys.stored_key, "server_key": keys.server_key}
    parts = [f"{key}={base64.b64encode(value).decode()}" for key, value in values.items()]
    return f"{name} {mechanism} {','.join(parts)},iterations={verifier.iterations}"


def parse_user_line(line: str) -> tuple[str, str, ScramVerifier]:
    """Return name, mechanism and verifier of a line. Raises: ConfigError, with the name and not the rest."""
    parts = line.split()
    name = parts[0]
    try:
        _, mechanism, credential = parts
        fields = dict(part.split("=", 1) for part in credential.split(","))
        salt, stored_key, server_key = (
            base64.b64decode(fields[key], validate=True) for key in ("salt", "stored_key", "server_key")
        )
        iterations = int(fields["iterations"])
        is_right = mechanism in DIGESTS and ITERATIONS_MIN <= iterations <= ITERATIONS_MAX and len(salt) > 0
        is_right = is_right and len(stored_key) == len(server_key) == len(hmac.digest(b"", b"", DIGESTS[mechanism]))
    except (ValueError, KeyError, binascii.Error):
        is_right = False
    if not is_right or len(name) > NAME_MAX:
        raise ConfigError(f"the line of user {name[:NAME_MAX]!r} is none that `kraftlib sasl-user` prints")
    keys = Keys(stored_key=stored_key, server_key=server_key)
    return name, mechanism, ScramVerifier(salt=salt, iterations=iterations, keys=(keys,))


@define(kw_only=True, eq=False)
class SaslUsers:
    """The user of this replica, and those who may log in."""

    config: SaslConfig
    node_id: int
    username: str
    password: bytes = attrs.field(repr=False)
    _listed: Verifiers = attrs.field(repr=False)
    """Of the configuration itself; those of the users file come beside them."""
    _anybody: Mapping[str, ScramVerifier] = attrs.field(repr=False)
    """Of the secret, by mechanism: it is that of every name."""

    _verifiers: Verifiers = attrs.field(factory=dict, repr=False, init=False)
    _chance: bytes = attrs.field(default=b"", repr=False, init=False)
    _seen: Signature | None = attrs.field(default=None, init=False)
    _salted: dict[tuple[str, bytes, bytes, int], bytes] = attrs.field(factory=dict, repr=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._read()

    def look(self) -> str | None:
        """Use a changed users file, if there is one; return why it cannot be used. Cheap enough for once a second."""
        path = self.config.users_file
        if path is None or signature((path,)) == self._seen:
            return None
        try:
            self._read()
        except ConfigError as error:
            return f"the changed users of [sasl] cannot be used, and the old ones stay in use: {error}"
        logger.info("%s has changed, and is in use: %d lines", path, len(self._verifiers))
        return None

    def _read(self) -> None:
        """Raises: ConfigError, and nothing has changed then."""
        path = self.config.users_file
        verifiers = dict(self._listed)
        if path is not None:
            self._seen = signature((path,))
            verifiers |= _from_lines(path, read_private(path))
        if PLAIN in self.config.accepted:
            _check_rounds(verifiers)
        self._verifiers = verifiers
        # Replicas with one users file make one salt up for a name that is not in it, also after a restart, as they have
        # one salt for a name that is. Of the first line only, which stays when users come and go.
        first = next((each for verifier in verifiers.values() for each in verifier.keys), None)
        self._chance = secrets.token_bytes(32) if first is None else hmac.digest(first.server_key, b"salts", "sha512")

    def is_own(self, name: str) -> bool:
        """Whether this is the user of this replica, and of no other one."""
        return name == self.username and self.config.replicas_of(name) == (self.node_id,)

    def login_of(self, name: str) -> Login:
        """Return what changes when a user is removed, or has another password."""
        return tuple(self._anybody.get(each) or self._verifiers.get((each, name)) for each in DIGESTS)

    def verifier_of(self, mechanism: str, name: str) -> tuple[ScramVerifier, bool]:
        """Return the verifier of a user, and whether there is such a user.

        For an unknown name it is one that no password satisfies, with the salt and the rounds that a user might have.
        """
        known = self._anybody.get(mechanism) or self._verifiers.get((mechanism, name))
        if known is not None:
            return known, True
        salt, stored, server = (
            hmac.digest(self._chance, f"{what} {mechanism} {name}".encode(), "sha512") for what in ("salt", "a", "b")
        )
        size = len(hmac.digest(b"", b"", DIGESTS[mechanism]))
        like = next((each for (kind, _), each in self._verifiers.items() if kind == mechanism), None)
        iterations, salt_bytes = (like.iterations, len(like.salt)) if like else (ITERATIONS_MIN, SALT_BYTES)
        keys = Keys(stored_key=stored[:size], server_key=server[:size])
        return ScramVerifier(salt=salt[:salt_bytes], iterations=iterations, keys=(keys,)), False

    def is_password(self, name: str, password: bytes) -> bool:
        """Whether this is the password of a user (PLAIN): milliseconds of work, the same for an unknown name."""
        mechanism = self._kind_for_plain(name)
        digest = DIGESTS[mechanism]
        verifier, is_known = self.verifier_of(mechanism, name)
        guess = keys_of(digest, salted_password(digest, password[:PASSWORD_MAX], verifier.salt, verifier.iterations))
        matches = [hmac.compare_digest(guess.stored_key, keys.stored_key) for keys in verifier.keys]
        return any(matches) and is_known and len(password) <= PASSWORD_MAX

    def _kind_for_plain(self, name: str) -> str:
        """Return whose verifier checks the password of this user; for an unknown one, that of the first one."""
        own = [each for each in DIGESTS if each in self._anybody or (each, name) in self._verifiers]
        return next(iter([*own, *(mechanism for mechanism, _ in self._verifiers)]), next(iter(DIGESTS)))

    def salted(self, digest: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        """As `salted_password`, remembered: a replica meets the same salts again and again."""
        key = digest, password, salt, iterations
        found = self._salted.get(key)
        if found is None:
            found = salted_password(digest, password, salt, iterations)
            if len(self._salted) >= REMEMBERED_MAX:
                self._salted.clear()
            self._salted[key] = found
        return found


def load_users(config: SaslConfig, node_id: int, *, encrypted: bool, insecure: bool) -> SaslUsers:
    """Read the files of a replica. Raises: ConfigError for them, and for passwords that would travel in the clear."""
    if PLAIN in (config.mechanism, *config.accepted) and not (encrypted or insecure):
        raise ConfigError(
            "[sasl]: PLAIN sends passwords, and this replica has no TLS: take mechanism = 'SCRAM-SHA-512', give [tls], "
            "or insecure = true if the network is yours alone"
        )
    username = config.username or f"{REPLICA_PREFIX}{node_id}"
    digests = [name for name in config.accepted if name in DIGESTS] or [*DIGESTS][:1]
    listed: Verifiers = {}
    anybody: dict[str, ScramVerifier] = {}
    if config.secret_file is not None:
        lines = _secrets(config.secret_file)
        anybody = {name: make_verifier(DIGESTS[name], *lines) for name in digests}
    else:
        lines = [_own_password(config)]
        passwords = {name: password.encode() for name, password in config.users.items()}
        if config.users_file is None and not config.users:
            passwords[username] = lines[0]
        for name, password in passwords.items():
            listed |= {(each, name): make_verifier(DIGESTS[each], password) for each in digests}
    return SaslUsers(
        config=config, node_id=node_id, username=username, password=lines[0], listed=listed, anybody=anybody
    )


def _check_rounds(verifiers: Verifiers) -> None:
    """Raises: ConfigError, for a user whose password takes too much work where any peer may send one to be checked."""
    for (_, name), verifier in verifiers.items():
        if verifier.iterations > PLAIN_ITERATIONS_MAX:
            raise ConfigError(
                f"[sasl]: user {name!r} has {verifier.iterations} iterations, and PLAIN is accepted, where any peer can"
                f" have them computed: at most {PLAIN_ITERATIONS_MAX}; give the user fewer, or accept SCRAM only"
            )


def _secrets(path: Path) -> list[bytes]:
    lines = read_private(path)
    if not lines or min(map(len, lines)) < SECRET_MIN:
        raise ConfigError(
            f"{path} must hold a secret of at least {SECRET_MIN} characters: openssl rand -base64 32 > {path}"
        )
    return [line.encode() for line in lines]


def _own_password(config: SaslConfig) -> bytes:
    if config.password_file is None:
        return (config.password or "").encode()
    lines = read_private(config.password_file)
    if not lines:
        raise ConfigError(f"{config.password_file} is empty: it must hold a password in its first line")
    return lines[0].encode()


def _from_lines(path: Path, lines: Iterable[str]) -> Verifiers:
    found: Verifiers = {}
    for line in lines:
        try:
            name, mechanism, verifier = parse_user_line(line)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        if (mechanism, name) in found:
            raise ConfigError(f"{path}: user {name!r} has two lines for {mechanism}; leave one of them out")
        found[mechanism, name] = verifier
    return found
