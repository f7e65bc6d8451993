"""The options of `[sasl]`: what is refused, what is never shown, and which user may speak as which replica."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlib.errors import ConfigError
from kraftlib.security.sasl import SaslConfig

SECRET = "correct horse battery"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "none of them given: give one of"),
        ({"password": "x", "secret_file": "s"}, "secret_file and password given: give one of"),
        ({"password": "x", "mechanism": "GSSAPI"}, "mechanism='GSSAPI' must be one of SCRAM-SHA-512"),
        ({"password": "x", "accept": ("CRAM-MD5",)}, "accept='CRAM-MD5' must be one of"),
        ({"secret_file": "s", "users_file": "u"}, "leave one of them out"),
        ({"secret_file": "s", "users": {"a": "b"}}, "leave one of them out"),
        ({"password": "x", "username": "two\nlines"}, r"user name 'two\\nlines' must have 1 to 255"),
        ({"password": "x", "users": {"": "y"}}, "user name '' must have"),
        ({"password": ""}, "password must be text"),
        ({"password": "x", "users": {"a": 1}}, "users must be a table"),
        ({"password": "x", "replicas": {"a": "1"}}, "must be a replica id or a list"),
        ({"password": "x", "replicas": {"a": [True]}}, "must be a replica id or a list"),
        ({"password": "x", "replicas": {"a": [-1]}}, "must be a replica id or a list"),
        ({"password": "x", "replicas": 3}, "must be a table"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SaslConfig(**options)


def test_no_password_is_shown() -> None:
    config = SaslConfig(username="one", password=SECRET, users={"two": SECRET})
    assert SECRET not in repr(config)
    with pytest.raises(ConfigError) as refused:
        SaslConfig(password="x", users={"two": SECRET, "three": 3})
    assert SECRET not in str(refused.value)


def test_what_is_accepted_is_what_is_spoken_unless_it_is_said() -> None:
    assert SaslConfig(password="x").accepted == ("SCRAM-SHA-512",)
    assert SaslConfig(password="x", accept=("PLAIN", "SCRAM-SHA-256")).accepted == ("PLAIN", "SCRAM-SHA-256")
    assert SaslConfig(secret_file="s").secret_file == Path("s")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("user", "ids"),
    [
        ("replica-2", (2,)),
        ("replica-02", ()),
        ("replica-", ()),
        ("replica-٢", ()),
        ("replica-1 ", ()),
        ("replica-99999999999", ()),
        ("replica-7", (8,)),
        ("Replica-2", ()),
        ("controller", (1, 2, 3)),
        ("one", (1,)),
        ("nobody", ()),
        ("", ()),
    ],
)
def test_a_user_is_bound_to_the_replicas_that_are_listed_or_that_it_is_called_after(
    user: str, ids: tuple[int, ...]
) -> None:
    config = SaslConfig(password="x", replicas={"controller": [1, 2, 3], "one": 1, "replica-7": [8]})  # type: ignore[dict-item]
    assert config.replicas_of(user) == ids


def test_a_peer_speaks_as_the_replicas_of_its_user_only() -> None:
    config = SaslConfig(password="x", replicas={"controller": (1, 2)})

    assert config.complaint(("User:replica-2",), 2) is None
    assert config.complaint(("User:controller",), 2) is None
    assert "'replica-2' is bound to 2" in (config.complaint(("User:replica-2",), 3) or "")
    assert "is bound to 1, 2" in (config.complaint(("User:controller",), 3) or "")
    assert config.complaint(("User:visitor",), 3) is None, "a user that is bound to none is judged by its role"
    assert "has not authenticated" in (config.complaint(("kraft://blue/3",), 3) or "")
    assert "has not authenticated" in (config.complaint((), 3) or "")
