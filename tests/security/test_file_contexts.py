"""kraftlib.security.file_contexts: the files of `[tls]`, how they are checked, and how they are renewed."""

from __future__ import annotations

import collections
import os
import re
import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from kraftlib.errors import ConfigError
from kraftlib.security.contexts import Holder, Trust, Validity, handshake_with_itself
from kraftlib.security.file_contexts import FileContexts
from kraftlib.security.tls import TlsConfig
from tests.clocks import Clock
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
    listed = frozenset({"cert:CN=controllers"})
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
    assert contexts.metrics()["tls-files-refused"] == 1
    assert serial_of(contexts) == first.serial
    replace(path, good)
    assert contexts.look() is None
    assert contexts.metrics()["tls-files-refused"] == 0
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


def test_refused_files_are_tried_again_and_said_again_every_day(authority: Authority) -> None:
    """The certificate becomes valid, and nothing changes in the file."""
    clock = Clock(100.0)
    contexts = FileContexts(authority.files("2", authority.issue(BLUE_2)), HOLDER, now=clock)
    early = authority.issue(BLUE_2, begins=timedelta(seconds=1.5), ends=90 * DAY)
    authority.files("2", early)

    assert "certificate is not yet valid" in (contexts.look() or "")
    clock.now += 10
    assert contexts.look() is None, "the same reason"
    clock.now += 86_400
    assert "certificate is not yet valid" in (contexts.look() or "")
    for _ in iter(lambda: contexts.metrics()["tls-files-refused"], 0):
        clock.now += 10
        assert contexts.look() is None
    assert serial_of(contexts) == early.serial


def test_a_file_that_was_written_in_place_with_its_old_time_is_seen(authority: Authority) -> None:
    """As `cp -p` and rsync do: size, time and inode are those of before."""
    issued = [authority.issue(BLUE_2, password=None) for _ in range(20)]
    first, second = next(
        (a, b)
        for a in issued
        for b in issued
        if a is not b and len(a.certificate + a.key) == len(b.certificate + b.key) and len(a.key) == len(b.key)
    )
    files = authority.files("2", first)
    contexts = FileContexts(files, HOLDER)
    for path, data in ((files.cert, second.certificate), (files.key, second.key)):
        assert path is not None
        before = path.stat()
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert contexts.look() is None
    assert serial_of(contexts) == second.serial


def test_a_change_of_who_may_read_a_file_is_seen(authority: Authority) -> None:
    """Root reads it all the same."""
    files = authority.files("2", authority.issue(BLUE_2))
    contexts = FileContexts(files, HOLDER)
    first = contexts.server
    assert files.key is not None
    files.key.chmod(0)
    said = contexts.look() or ""
    assert ("cannot be read: Permission denied" in said) == (os.geteuid() != 0)
    files.key.chmod(0o600)
    assert contexts.look() is None
    assert contexts.server is not first
    assert contexts.metrics()["tls-files-refused"] == 0


LONG: dict[str, Any] = {"begins": -90 * DAY, "ends": 90 * DAY}
SHORT: dict[str, Any] = {"begins": -90 * DAY, "ends": 6 * DAY}


@pytest.mark.parametrize("part", ["certificate", "chain", "authority", "list"])
def test_whatever_ends_first_is_a_metric_and_a_warning_every_day(part: str, tmp_path: Path) -> None:
    terms = {name: SHORT if name == part else LONG for name in ("certificate", "chain", "authority", "list")}
    root = Authority(tmp_path, path_length=1, **terms["authority"])
    between = Authority(tmp_path, name="between", parent=root, **terms["chain"])
    issued = between.issue(BLUE_2, **terms["certificate"])
    issued = attrs.evolve(issued, certificate=issued.certificate + between.pem)
    lists = root.revoke(**LONG) + between.revoke(**terms["list"])
    clock = Clock(100.0)
    contexts = FileContexts(root.files("2", issued, crl=lists), HOLDER, now=clock)
    said = {
        "certificate": "cert.pem of this replica",
        "chain": "a certificate of the chain in",
        "authority": "an authority of",
        "list": "a revocation list of",
    }[part]

    assert 5.9 < contexts.metrics()["tls-days-left"] <= 6
    assert (contexts.metrics()["certificate-days-left"] < 7) == (part == "certificate")
    assert re.fullmatch(f"[^;]*{said}[^;]* ends in 6.0 days: put a new one in its place", contexts.look() or "")
    assert contexts.look() is None
    clock.now += 86_400
    assert said in (contexts.look() or "")


def test_a_list_that_is_made_anew_every_day_is_no_warning(authority: Authority) -> None:
    issued = authority.issue(BLUE_2, ends=90 * DAY)
    contexts = FileContexts(authority.files("2", issued, crl=authority.revoke(begins=-DAY, ends=6 * DAY)), HOLDER)
    assert contexts.look() is None


def test_an_expired_list_refuses_newcomers_and_new_files_until_there_is_a_new_one(authority: Authority) -> None:
    issued = authority.issue(BLUE_2, ends=90 * DAY)
    files = authority.files("2", issued, crl=authority.revoke(ends=timedelta(seconds=1.5)))
    contexts = FileContexts(files, HOLDER)
    running = Validity(None, contexts.trust)
    with pytest.raises(ssl.SSLError, match="CRL has expired"):
        collections.deque(iter(lambda: serial_of(contexts), None), maxlen=0)  # handshakes until one fails

    assert "a revocation list of" in (contexts.look() or "")
    assert running.is_over(contexts) is None, "who is connected stays"
    renewed = authority.issue(BLUE_2, ends=90 * DAY)
    authority.files("2", renewed)
    assert "CRL has expired" in (contexts.look() or ""), "a new certificate cannot be tried"
    assert files.crl is not None
    replace(files.crl, authority.revoke())
    assert contexts.look() is None
    assert serial_of(contexts) == renewed.serial
    assert "may connect anew" in (running.is_over(contexts) or "")
