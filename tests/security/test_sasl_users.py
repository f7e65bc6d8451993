"""Files with secrets: who may read them, what they must hold, and how a user that is not there looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlib.errors import ConfigError
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.sasl_users import SaslUsers, load_users, parse_user_line, read_private, user_line
from kraftlib.security.scram import ScramClient, ScramError, ScramServer, make_verifier

SECRET = "correct horse battery"


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def loaded(node_id: int = 1, *, encrypted: bool = False, insecure: bool = False, **options: Any) -> SaslUsers:
    return load_users(SaslConfig(**options), node_id, encrypted=encrypted, insecure=insecure)


def opens(users: SaslUsers, name: str, password: str, mechanism: str = "SCRAM-SHA-512", digest: str = "sha512") -> bool:
    client = ScramClient(digest, name, password.encode())
    server = ScramServer(digest, lambda asked: users.verifier_of(mechanism, asked))
    try:
        client.check(server.final(client.final(server.first(client.first()))))
    except ScramError:
        return False
    return True


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644])
def test_a_file_that_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = private(tmp_path / "secret", SECRET)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"has mode {mode:o}, and others may .*: chmod 600 "):
        read_private(path)
    path.chmod(0o400)
    assert read_private(path) == [SECRET]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*nothing-here.*; name a file"):
        read_private(tmp_path / "nothing-here")
    path = private(tmp_path / "binary", "")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="no text"):
        read_private(path)
    path.write_bytes(b"x" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="longer than"):
        read_private(path)


def test_a_secret_opens_under_every_name_and_older_ones_do_too(tmp_path: Path) -> None:
    older = "an older secret, kept for a while"
    path = private(tmp_path / "secret", f"# of the quorum\n{SECRET}\n\n{older}\n")
    users = loaded(3, secret_file=path)

    assert (users.username, users.password) == ("replica-3", SECRET.encode())
    assert opens(users, "replica-1", SECRET)
    assert opens(users, "admin", older)
    assert not opens(users, "replica-1", "another secret")


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "short", f"{SECRET}\nshort"])
def test_a_secret_must_be_long_enough(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="at least 16 characters: openssl rand") as refused:
        loaded(secret_file=private(tmp_path / "secret", text))
    assert SECRET not in str(refused.value)


def test_without_a_list_the_own_user_is_the_only_one(tmp_path: Path) -> None:
    """As in a quorum of Kafka, whose controllers share one user."""
    users = loaded(username="admin", password_file=private(tmp_path / "password", f"{SECRET}\n"))
    assert opens(users, "admin", SECRET)
    assert not opens(users, "replica-1", SECRET)
    with pytest.raises(ConfigError, match="must hold a password"):
        loaded(username="admin", password_file=private(tmp_path / "empty", "\n"))


def test_a_list_of_users_holds_verifiers_and_no_password(tmp_path: Path) -> None:
    lines = [
        user_line("replica-2", "SCRAM-SHA-512", make_verifier("sha512", SECRET.encode(), iterations=5_000)),
        user_line("old", "SCRAM-SHA-256", make_verifier("sha256", SECRET.encode())),
    ]
    path = private(tmp_path / "users", "\n".join(lines))
    users = loaded(password=SECRET, users_file=path, accept=("SCRAM-SHA-512", "SCRAM-SHA-256"))

    assert SECRET not in path.read_text()
    assert opens(users, "replica-2", SECRET)
    assert opens(users, "old", SECRET, "SCRAM-SHA-256", "sha256")
    assert not opens(users, "old", SECRET)
    assert not opens(users, "replica-1", SECRET)  # its own user is not in the list


def test_an_unknown_user_looks_like_the_others(tmp_path: Path) -> None:
    line = user_line("replica-2", "SCRAM-SHA-512", make_verifier("sha512", SECRET.encode(), iterations=5_000))
    users = loaded(password=SECRET, users_file=private(tmp_path / "users", line))

    known, is_known = users.verifier_of("SCRAM-SHA-512", "replica-2")
    stranger, is_stranger_known = users.verifier_of("SCRAM-SHA-512", "stranger")
    again, _ = users.verifier_of("SCRAM-SHA-512", "stranger")
    other, _ = users.verifier_of("SCRAM-SHA-512", "other")

    assert (is_known, is_stranger_known) == (True, False)
    assert (stranger.iterations, len(stranger.salt)) == (known.iterations, len(known.salt))
    assert stranger == again
    assert stranger.salt != other.salt
    assert len(stranger.keys[0].stored_key) == len(known.keys[0].stored_key)


def test_no_replica_and_no_restart_tells_who_is_unknown(tmp_path: Path) -> None:
    """Those who are known have one salt everywhere: so must those who are not, also when others are added."""
    line = user_line("ann", "SCRAM-SHA-512", make_verifier("sha512", SECRET.encode()))
    path = private(tmp_path / "users", line)
    first = loaded(1, password=SECRET, users_file=path)
    private(path, f"{line}\n{user_line('ben', 'SCRAM-SHA-512', make_verifier('sha512', SECRET.encode()))}")
    second = loaded(2, password=SECRET, users_file=path)
    for name in ("ann", "nobody"):
        salts = {each.verifier_of("SCRAM-SHA-512", name)[0].salt for each in (first, second)}
        assert len(salts) == 1


def test_a_changed_file_is_read_again_and_a_bad_one_is_not_used(tmp_path: Path) -> None:
    lines = [user_line(name, "SCRAM-SHA-512", make_verifier("sha512", SECRET.encode())) for name in ("ann", "ben")]
    path = private(tmp_path / "users", "\n".join(lines))
    users = loaded(password=SECRET, users_file=path)
    before = {name: users.login_of(name) for name in ("ann", "ben")}
    assert users.look() is None

    private(path, lines[0])
    assert users.look() is None
    assert users.login_of("ann") == before["ann"]
    assert users.login_of("ben") != before["ben"]
    assert not opens(users, "ben", SECRET)

    private(path, "nonsense")
    assert "the old ones stay in use: " in (users.look() or "")
    assert users.look() is None, "it is said once"
    path.unlink()
    assert "cannot read" in (users.look() or "")
    assert opens(users, "ann", SECRET)


def test_where_plain_is_accepted_no_user_costs_more_than_20_ms(tmp_path: Path) -> None:
    line = user_line("ann", "SCRAM-SHA-512", make_verifier("sha512", SECRET.encode(), iterations=12_289))
    path = private(tmp_path / "users", line)
    with pytest.raises(ConfigError, match=r"user 'ann' has 12289 iterations, and PLAIN is accepted.*accept SCRAM only"):
        loaded(password=SECRET, users_file=path, accept=("SCRAM-SHA-512", "PLAIN"), encrypted=True)
    assert opens(loaded(password=SECRET, users_file=path), "ann", SECRET)


def test_the_line_of_a_user_is_read_as_it_was_written() -> None:
    verifier = make_verifier("sha512", SECRET.encode())
    assert parse_user_line(user_line("one", "SCRAM-SHA-512", verifier)) == ("one", "SCRAM-SHA-512", verifier)


GOOD = user_line("one", "SCRAM-SHA-512", make_verifier("sha512", SECRET.encode()))


@pytest.mark.parametrize(
    "line",
    [
        "one",
        f"one {SECRET}",
        GOOD.replace("SHA-512", "SHA-1"),
        GOOD.replace("SHA-512", "SHA-256"),
        GOOD.replace("iterations=4096", "iterations=4095"),
        GOOD.replace("iterations=4096", "iterations=many"),
        GOOD.replace("server_key", "servant_key"),
        GOOD.replace("stored_key=", "stored_key=A"),
        f"{'x' * 256} {GOOD}",
    ],
)
def test_a_line_that_is_none_is_refused_without_being_shown(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match="the line of user") as refused:
        loaded(password=SECRET, users_file=private(tmp_path / "users", line))
    assert SECRET not in str(refused.value)
    assert "stored_key" not in str(refused.value)


def test_a_user_stands_in_a_list_once_for_each_mechanism(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two lines for SCRAM-SHA-512"):
        loaded(password=SECRET, users_file=private(tmp_path / "users", f"{GOOD}\n{GOOD}"))


def test_plain_is_checked_with_a_verifier_too(tmp_path: Path) -> None:
    path = private(tmp_path / "users", GOOD)
    users = loaded(password=SECRET, users_file=path, mechanism="PLAIN", encrypted=True)

    assert users.is_password("one", SECRET.encode())
    assert not users.is_password("one", b"another")
    assert not users.is_password("two", SECRET.encode())
    assert not users.is_password("one", b"")
    assert not users.is_password("one", SECRET.encode() + bytes(2_000))


@pytest.mark.parametrize("options", [{"mechanism": "PLAIN"}, {"accept": ("SCRAM-SHA-512", "PLAIN")}])
def test_plain_needs_tls_or_an_operator_who_says_otherwise(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="PLAIN sends passwords, and this replica has no TLS"):
        loaded(password=SECRET, **options)
    assert loaded(password=SECRET, insecure=True, **options).password == SECRET.encode()
    assert loaded(password=SECRET, encrypted=True, **options).password == SECRET.encode()


def test_users_of_kafkas_form_have_passwords() -> None:
    users = loaded(username="one", password=SECRET, users={"two": "another"})
    assert opens(users, "two", "another")
    assert not opens(users, "one", SECRET)


def test_no_secret_stands_in_a_repr(tmp_path: Path) -> None:
    users = loaded(username="one", password=SECRET, users={"two": "another"})
    assert SECRET not in repr(users)
    assert "another" not in repr(users)
    assert "stored_key" not in repr(users)


def test_the_same_salt_costs_its_rounds_once(monkeypatch: pytest.MonkeyPatch) -> None:
    users, calls = loaded(password=SECRET), []
    monkeypatch.setattr(
        "kraftlib.security.sasl_users.salted_password", lambda *key: calls.append(key) or str(key).encode()
    )
    keys = [("sha512", SECRET.encode(), bytes([number]), 4_096) for number in range(100)]
    assert users.salted(*keys[0]) == users.salted(*keys[0])
    assert len(calls) == 1
    for key in keys:
        users.salted(*key)
    assert len(calls) == 100
