"""kraftlib.security.own_contexts: contexts that let strangers past are refused at the start."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from kraftlib.errors import ConfigError
from kraftlib.security.own_contexts import Use, contexts_of
from kraftlib.security.tls import TlsConfig
from tests.security.authority import Authority


@pytest.fixture
def own(tmp_path: Path) -> dict[str, ssl.SSLContext]:
    return Authority(tmp_path).contexts("kraft://blue/2")


def test_contexts_that_verify_are_used(own: dict[str, ssl.SSLContext]) -> None:
    contexts = contexts_of(None, own["server_ssl"], own["client_ssl"], Use(strict=True))
    assert (contexts.server, contexts.client) == (own["server_ssl"], own["client_ssl"])


@pytest.mark.parametrize(
    ("given", "change", "use", "message"),
    [
        ("server", {}, {}, "server_ssl= without client_ssl=: .* in plaintext; give both"),
        ("client", {}, {}, "client_ssl= without server_ssl=: .* in plaintext; give both"),
        ("both", {"server_ssl.verify_mode": ssl.CERT_NONE}, {}, "CERT_NONE lets peers in without .*CERT_REQUIRED, or"),
        ("both", {"server_ssl.verify_mode": ssl.CERT_OPTIONAL}, {}, "verify_mode=CERT_OPTIONAL"),
        (
            "both",
            {"server_ssl.verify_mode": ssl.CERT_NONE},
            {"strict": True, "insecure": True, "password": True},
            "set it to ssl.CERT_REQUIRED$",
        ),
        (
            "both",
            {"client_ssl.check_hostname": False, "client_ssl.verify_mode": ssl.CERT_NONE},
            {},
            "client_ssl.verify_mode=CERT_NONE trusts any server",
        ),
        ("both", {"server_ssl.minimum_version": ssl.TLSVersion.MINIMUM_SUPPORTED}, {}, "server_ssl.minimum_version="),
        ("both", {"client_ssl.minimum_version": ssl.TLSVersion.TLSv1_1}, {}, "client_ssl.minimum_version=TLSv1_1"),
        (
            "none",
            {},
            {"strict": True, "insecure": True},
            r"\[tls\] names no files, and neither server_ssl= nor client_",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_contexts_that_fail_open_are_refused_with_a_remedy(
    own: dict[str, ssl.SSLContext], given: str, change: dict[str, Any], use: dict[str, Any], message: str
) -> None:
    for place, value in change.items():
        name, _, attribute = place.partition(".")
        setattr(own[name], attribute, value)
    server = own["server_ssl"] if given in ("server", "both") else None
    client = own["client_ssl"] if given in ("client", "both") else None
    with pytest.raises(ConfigError, match=message):
        contexts_of(TlsConfig() if given == "none" else None, server, client, Use(**use))


@pytest.mark.parametrize("name", ["server_ssl", "client_ssl"])
@pytest.mark.parametrize("suites", ["ALL:@SECLEVEL=0", "aNULL:@SECLEVEL=0", "HIGH:eNULL:@SECLEVEL=0"])
def test_contexts_take_no_cipher_suite_without_certificates_or_secrets(
    own: dict[str, ssl.SSLContext], name: str, suites: str
) -> None:
    own[name].set_ciphers(suites)
    with pytest.raises(ConfigError, match=rf"{name} takes the cipher suite .*set_ciphers\('HIGH:!aNULL:!eNULL'\)"):
        contexts_of(None, own["server_ssl"], own["client_ssl"], Use(strict=True))
    own[name].set_ciphers("HIGH:!aNULL:!eNULL")
    assert contexts_of(None, own["server_ssl"], own["client_ssl"], Use(strict=True)).server is own["server_ssl"]


def test_what_is_not_needed_need_not_be_given(own: dict[str, ssl.SSLContext]) -> None:
    follower = Use(is_connected_to=False)
    assert contexts_of(None, None, own["client_ssl"], follower).server is None
    assert contexts_of(None, own["server_ssl"], None, Use(connects=False)).client is None
    own["server_ssl"].verify_mode = ssl.CERT_NONE
    assert contexts_of(None, own["server_ssl"], own["client_ssl"], Use(password=True)).server is own["server_ssl"]


def test_unnamed_servers_are_known_by_their_host(own: dict[str, ssl.SSLContext]) -> None:
    own["client_ssl"].check_hostname = False
    contexts_of(None, own["server_ssl"], own["client_ssl"], Use())
    with pytest.raises(ConfigError, match="leaves the identity of servers unchecked"):
        contexts_of(TlsConfig(unnamed_replicas=True), own["server_ssl"], own["client_ssl"], Use())


def test_files_beside_contexts_are_refused(own: dict[str, ssl.SSLContext], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.files("2", authority.issue("kraft://blue/2"))
    with pytest.raises(ConfigError, match=r"beside tls\.cert: give one or the other"):
        contexts_of(files, own["server_ssl"], None, Use())
