"""kraftlib.security.contexts: what must be true of a connection."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from kraftlib.errors import ConfigError
from kraftlib.security.contexts import (
    Trust,
    Validity,
    client_context,
    handshake_with_itself,
    server_context,
    unverified,
)
from kraftlib.security.tls import TlsConfig
from tests.security.authority import Authority


def test_a_connection_is_over_when_the_certificate_of_the_peer_ends() -> None:
    contexts: Any = Trust().contexts
    assert Validity(1.0, 0).is_over(contexts) == "its certificate has ended"
    assert Validity(2.0**40, 0).is_over(contexts) is None


def test_a_connection_without_a_certificate_is_not_used_where_one_is_required(tmp_path: Path) -> None:
    context = Authority(tmp_path).contexts()["server_ssl"]
    assert unverified(None, None) is None
    assert unverified(context, {"subject": ()}) is None
    assert unverified(context, None) == "it has shown no certificate: the cipher suite asks for none"
    context.verify_mode = ssl.CERT_NONE
    assert unverified(context, {}) is None, "nobody asks for certificates there"


def test_options_without_files_make_no_context() -> None:
    for make in (client_context, server_context):
        with pytest.raises(ConfigError, match=r"\[tls\] names no files: give tls.cert"):
            make(TlsConfig(check_hostname=False))


def test_a_name_that_is_no_text_is_an_error_of_tls(tmp_path: Path) -> None:
    names = x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), b"\x30\x04\x86\x02\xff\xfe")
    given = Authority(tmp_path).contexts(extensions=[names])
    given["client_ssl"].check_hostname = False
    with pytest.raises(ssl.SSLError, match=r"its certificate has a name that is no UTF-8: b'\\xff\\xfe'"):
        handshake_with_itself(given["server_ssl"], given["client_ssl"])
