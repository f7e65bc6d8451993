"""kraftlib.security.contexts: the files of `[tls]`, how they are checked, and how they are renewed."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from kraftlib.errors import ConfigError
from kraftlib.security.contexts import FileContexts, Holder, Trust, Validity, handshake_with_itself
from kraftlib.security.tls import TlsConfig
from tests.security.authority import DAY, Authority, replace

HOLDER = Holder(cluster_id="blue", node_id=2)
BLUE_2 = "kraft://blue/2"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_contexts_verify_the_other_side_with_tls_1_2_at_least(authority: Authority) -> None:
    contexts = FileContexts(authority.files("2", authority.issue(BLUE_2)), HOLDER)

    assert contexts.server is not None
    assert contexts.client is not None
    for context in (contexts.server, contexts.client):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert [dict(part[0] for part in ca["subject"]) for ca in context.get_ca_certs()] == [
            {"commonName": "an authority"}
        ], "no authority of the system is trusted"
    assert contexts.client.check_hostname


def test_a_key_may_have_a_password_in_a_file(authority: Authority) -> None:
    (authority.directory / "password").write_text("secret\n")
    issued = authority.issue(BLUE_2, password=b"secret")
    files = authority.files("2", issued, key_password_file=authority.directory / "password")

    assert FileContexts(files, HOLDER).server is not None
    with pytest.raises(ConfigError, match=r"key='.*' is encrypted: name key_password_file"):
        FileContexts(attrs.evolve(files, key_password_file=None), HOLDER)
    (authority.directory / "password").write_text("wrong\n")
    with pytest.raises(ConfigError, match="cannot be used") as raised:
        FileContexts(files, HOLDER)
    assert "wrong" not in str(raised.value), "a password is in no error"


WRONG: dict[str, tuple[Callable[[Authority, Authority], TlsConfig], str]] = {
    "no such file": (
        lambda ours, other: attrs.evolve(ours.files("2", ours.issue(BLUE_2)), ca=Path("none.pem")),
        "ca='none.pem' cannot be used: No such file or directory; it must be a PEM file",
    ),
    "no such key": (
        lambda ours, other: attrs.evolve(ours.files("2", ours.issue(BLUE_2)), key=Path("none.key")),
        "key='none.key' cannot be read: No such file or directory; name a PEM file",
    ),
    "no PEM": (lambda ours, other: not_pem(ours.files("2", ours.issue(BLUE_2))), "they must be PEM files that fit"),
    "key of another": (
        lambda ours, other: ours.files("2", attrs.evolve(ours.issue(BLUE_2), key=ours.issue(BLUE_2).key)),
        "KEY_VALUES_MISMATCH; they must be PEM files that fit together",
    ),
    "another authority": (
        lambda ours, other: ours.files("2", other.issue(BLUE_2)),
        "take a certificate of this author",
    ),
    "expired": (lambda ours, other: ours.files("2", ours.issue(BLUE_2, ends=timedelta())), "certificate has expired"),
    "revoked": (lambda ours, other: revoked(ours), "certificate revoked"),
    "another replica": (
        lambda ours, other: ours.files("2", ours.issue("kraft://blue/3")),
        "is not for replica 2: its certificate is that of 3; take one with the alternative name URI:kraft://blue/2$",
    ),
    "no name": (
        lambda ours, other: ours.files("2", ours.issue()),
        "names no replica; take one with the alternative name URI:kraft://blue/2, or set unnamed_replicas = true",
    ),
}


def not_pem(files: TlsConfig) -> TlsConfig:
    assert files.cert is not None
    files.cert.write_bytes(b"\x30\x82")
    return files


def revoked(authority: Authority) -> TlsConfig:
    issued = authority.issue(BLUE_2)
    return authority.files("2", issued, crl=authority.revoke(issued.serial))


@pytest.mark.parametrize("case", WRONG)
def test_files_that_cannot_be_used_are_an_error_with_a_remedy(case: str, authority: Authority, tmp_path: Path) -> None:
    make, message = WRONG[case]
    (tmp_path / "other").mkdir()
    files = make(authority, Authority(tmp_path / "other", name="another authority"))
    with pytest.raises(ConfigError, match=message):
        FileContexts(files, HOLDER)


def test_a_principal_that_may_speak_as_any_replica_needs_no_uri(authority: Authority) -> None:
    files = authority.files("2", authority.issue(common_name="controllers"))
    listed = frozenset({"cert:controllers"})
    certificate = {"subject": ((("commonName", "controllers"),),)}

    assert FileContexts(files, attrs.evolve(HOLDER, replicas=listed)).server is not None
    assert Trust(replicas=listed).complaint(certificate, 2) is None
    assert Trust().complaint(certificate, 2) == "its certificate names no replica"


def test_an_unnamed_certificate_is_used_where_the_operator_says_so(authority: Authority) -> None:
    files = authority.files("2", authority.issue(), unnamed_replicas=True)
    assert FileContexts(files, HOLDER).server is not None


def serial_of(contexts: FileContexts) -> int:
    """Return the serial number of the certificate that the next handshake shows."""
    assert contexts.server is not None
    assert contexts.client is not None
    contexts.client.check_hostname = False
    return int(handshake_with_itself(contexts.server, contexts.client)["serialNumber"], 16)


def test_renewed_files_are_used_by_the_next_handshake(authority: Authority) -> None:
    files = authority.files("2", authority.issue(BLUE_2, ends=40 * DAY))
    contexts = FileContexts(files, HOLDER)
    assert contexts.look() is None
    assert 39 < (contexts.days_left or 0) <= 40
    renewed = authority.issue(BLUE_2, ends=90 * DAY)

    authority.files("2", renewed)

    assert contexts.look() is None
    assert serial_of(contexts) == renewed.serial
    assert 89 < (contexts.days_left or 0) <= 90
    assert contexts.trust == 0, "who is connected may stay"


@pytest.mark.parametrize("part", ["cert", "key", "ca"])
def test_bad_new_files_leave_the_old_ones_in_use_and_are_said_once(authority: Authority, part: str) -> None:
    first = authority.issue(BLUE_2, ends=40 * DAY)
    files = authority.files("2", first)
    contexts = FileContexts(files, HOLDER)
    path: Path = getattr(files, part)
    good = path.read_bytes()

    replace(path, b"half a fi")

    assert "the old ones stay in use" in (contexts.look() or "")
    assert contexts.look() is None
    assert serial_of(contexts) == first.serial
    replace(path, good)
    assert contexts.look() is None
    assert serial_of(contexts) == first.serial


def test_a_certificate_and_its_key_may_come_one_after_the_other(authority: Authority) -> None:
    files = authority.files("2", authority.issue(BLUE_2, ends=40 * DAY))
    contexts = FileContexts(files, HOLDER)
    renewed = authority.issue(BLUE_2, ends=40 * DAY)
    assert files.cert is not None
    assert files.key is not None

    replace(files.cert, renewed.certificate)
    assert "KEY_VALUES_MISMATCH" in (contexts.look() or "")
    replace(files.key, renewed.key)

    assert contexts.look() is None
    assert serial_of(contexts) == renewed.serial


def test_a_new_revocation_list_ends_the_connections_that_began_before(authority: Authority) -> None:
    files = authority.files("2", authority.issue(BLUE_2, ends=40 * DAY), crl=authority.revoke())
    contexts = FileContexts(files, HOLDER)
    before = Validity(None, contexts.trust)
    assert before.is_over(contexts) is None

    assert files.crl is not None
    replace(files.crl, authority.revoke(1, 2, 3))

    assert contexts.look() is None
    assert "revocation lists have changed" in (before.is_over(contexts) or "")
    assert Validity(None, contexts.trust).is_over(contexts) is None


def test_a_connection_is_over_when_the_certificate_of_the_peer_ends() -> None:
    contexts: Any = Trust().contexts
    assert Validity(1.0, 0).is_over(contexts) == "its certificate has ended"
    assert Validity(2.0**40, 0).is_over(contexts) is None


def test_a_certificate_that_ends_soon_is_said_once(authority: Authority) -> None:
    contexts = FileContexts(authority.files("2", authority.issue(BLUE_2, ends=6 * DAY)), HOLDER)

    assert "ends in 6.0 days: put a new one in its place" in (contexts.look() or "")
    assert contexts.look() is None
