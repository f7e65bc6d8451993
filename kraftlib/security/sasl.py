"""SASL of a replica: the options of the table `[sasl]`.

The short form is one secret for all replicas of a quorum:

    [sasl]
    secret_file = "quorum.secret"

The long form has users, as Kafka does: the user of this replica, and the users that may log in here.

    [sasl]
    username = "replica-1"
    password_file = "replica-1.password"
    users_file = "users"
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.errors import ConfigError
from kraftlib.frozen import immutable

DIGESTS: Final[Mapping[str, str]] = {"SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256"}
"""The mechanisms of SCRAM, and the digest of each by its name in hashlib."""

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (*DIGESTS, PLAIN)

NAME_MAX: Final = 255
"""The longest user name, in characters."""

REPLICA_PREFIX: Final = "replica-"
"""A user of this name and a number is bound to the replica of that id, unless `replicas` says otherwise."""

USER_PREFIX: Final = "User:"
"""Kafka writes a user as a principal like this."""


def _check_mechanism(name: str, value: object) -> None:
    if value not in MECHANISMS:
        raise ConfigError(f"{name}={value!r} must be one of {', '.join(MECHANISMS)}")


def _bindings(value: object) -> dict[str, tuple[int, ...]]:
    """Return which replicas each user may speak as; a single id stands for a list of one."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"replicas={value!r} must be a table of user names and replica ids")
    found = {}
    for name, ids in value.items():
        listed: Any = ids if isinstance(ids, list | tuple) else [ids]
        if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in listed):
            raise ConfigError(f"replicas: {name}={ids!r} must be a replica id or a list of replica ids")
        found[str(name)] = tuple(listed)
    return found


def _passwords(value: object) -> dict[str, str]:
    """Return the password of each user. Errors name no value."""
    if not isinstance(value, Mapping) or not all(isinstance(each, str) and each for each in value.values()):
        raise ConfigError("users must be a table of user names and passwords, as text")
    return {str(name): str(password) for name, password in value.items()}


@immutable(kw_only=True)
class SaslConfig:
    """Authentication of replicas and clients, in both directions, before anything else is said on a connection.

    Either `secret_file`, or a user of this replica's own: `username` with `password_file` or `password`. No value of a
    secret stands in a repr or an error.
    """

    mechanism: str = "SCRAM-SHA-512"
    """The mechanism on connections that this replica makes: SCRAM-SHA-512, SCRAM-SHA-256, or PLAIN, which sends the
    password and therefore needs TLS (or `insecure`)."""

    accept: tuple[str, ...] = ()
    """The mechanisms on connections that are made to this replica. Empty: `mechanism`."""

    secret_file: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    """A file with the secret of the quorum in its first line, at least 16 characters. A peer that knows the secret may
    log in under any name. Further lines are older secrets, which are accepted and not used."""

    username: str | None = None
    """The user that this replica logs in as. None: `replica-ID`, with its own id."""

    password: str | None = attrs.field(default=None, repr=False)
    """The password of `username`. Better in a `password_file`."""

    password_file: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    """A file with the password of `username` in its first line."""

    users_file: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    """A file with a line for each user that may log in here, as `kraftlib sasl-user NAME` prints it. None: this
    replica's own user is the only one, beside those of `users`."""

    users: Mapping[str, str] = attrs.field(factory=dict, converter=_passwords, repr=False, hash=False)
    """Users that may log in here and their passwords, as in a JAAS configuration of Kafka. Better in a `users_file`."""

    replicas: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict, converter=_bindings, hash=False)
    """The ids that a user may speak as: `{"controller" = [1, 2, 3]}`. A user that is not listed and is called
    `replica-ID` is bound to that id; any other user is bound to none, and is a client unless `[access]` gives it
    another role."""

    def __attrs_post_init__(self) -> None:
        _check_mechanism("mechanism", self.mechanism)
        for name in self.accept:
            _check_mechanism("accept", name)
        if self.password is not None and (not isinstance(self.password, str) or not self.password):
            raise ConfigError("password must be text that is not empty")
        for name in (*self.users, *(() if self.username is None else (self.username,))):
            if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX or not name.isprintable():
                raise ConfigError(f"user name {name!r} must have 1 to {NAME_MAX} characters, all of them printable")
        given = [name for name in ("secret_file", "password_file", "password") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise ConfigError(f"{found} given: give one of secret_file, password_file and password")
        if self.secret_file is not None and (self.users_file is not None or self.users):
            raise ConfigError("secret_file and users: a peer that knows the secret may log in; leave one of them out")

    @property
    def accepted(self) -> tuple[str, ...]:
        """The mechanisms that are accepted."""
        return self.accept or (self.mechanism,)

    def replicas_of(self, user: str) -> tuple[int, ...]:
        """Return the ids that this user may speak as; empty for a client."""
        if user in self.replicas:
            return self.replicas[user]
        number = user.removeprefix(REPLICA_PREFIX)
        named = number != user and number.isascii() and number.isdigit() and len(number) <= len(str(2**31))
        return (int(number),) if named and str(int(number)) == number else ()

    def complaint(self, principals: tuple[str, ...], claimed: int) -> str | None:
        """Return why the user of a peer may not speak as replica `claimed`; None if it is bound to it, or to none.

        A user that is bound to none is a client, unless `[access]` gives it another role.
        """
        user = next((name for name in principals if name.startswith(USER_PREFIX)), None)
        if user is None:
            return f"it speaks as replica {claimed}, and has not authenticated"
        bound = self.replicas_among(principals)
        if claimed in bound or not bound:
            return None
        ids = ", ".join(map(str, bound))
        return f"it speaks as replica {claimed}, and its user {user.removeprefix(USER_PREFIX)!r} is bound to {ids}"

    def replicas_among(self, principals: tuple[str, ...]) -> tuple[int, ...]:
        """Return the ids that the users among the names of a peer are bound to."""
        users = [name.removeprefix(USER_PREFIX) for name in principals if name.startswith(USER_PREFIX)]
        return tuple(each for user in users for each in self.replicas_of(user))
