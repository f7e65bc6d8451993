"""TLS cases: for each one who is refused, by which side, and with what words; handshakes run in memory.

Replica 1 of the cluster blue accepts and dials; the other side is, or says it is, replica 2. "server" and "client" are
the sides of a handshake; None: the other side is heard, or spoken to.
"""

from __future__ import annotations

import functools
import re
import ssl
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from kraftlib.errors import ConfigError
from kraftlib.runtime.net.sockets import handshake_trouble
from kraftlib.security.contexts import Holder, Trust, client_context, server_context, unverified
from kraftlib.security.file_contexts import FileContexts
from kraftlib.security.own_contexts import Use, contexts_of
from kraftlib.security.tls import TlsConfig
from tests.security.authority import DAY, UNKNOWN, Authority, Issued, replace

BLUE_2: Final = "kraft://blue/2"
HOUR: Final = timedelta(hours=1)
SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH
SIGNING: Final = ExtendedKeyUsageOID.CODE_SIGNING
SAN: Final = x509.ObjectIdentifier("2.5.29.17")


class World:
    """One root with an authority below it, and others that are not trusted or not valid."""

    def __init__(self, directory: Path) -> None:
        self.root = Authority(directory, name="root", path_length=1)
        self.below = Authority(directory, name="below", parent=self.root)
        self.too_deep = Authority(directory, name="too deep", parent=self.below)
        self.ended = Authority(directory, name="ended", parent=self.root, ends=timedelta())
        self.foreign = Authority(directory, name="foreign")
        self.namesake = Authority(directory, name="root", path_length=1)
        self.old = Authority(directory, name="old", ends=timedelta())
        self.early = Authority(directory, name="early", begins=HOUR, ends=2 * DAY)
        self.weak_key = rsa.generate_private_key(65537, 1024)

    def files(self, issued: Issued | None = None, **settings: Any) -> TlsConfig:
        issued = issued or self.root.issue("kraft://blue/1")
        return self.root.files(f"holder-{x509.random_serial_number()}", issued, **settings)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("authorities"))


def below(authority: Authority, *above: Authority, **how: Any) -> Issued:
    """Issue a certificate, and put those of the authorities below it."""
    issued = authority.issue(BLUE_2, **how)
    return attrs.evolve(issued, certificate=issued.certificate + b"".join(each.pem for each in above))


def plain(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return a context of somebody else, who does not check us."""
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    return context


def other(world: World, issued: Issued | None, *, server: bool) -> ssl.SSLContext:
    """Return a context of the other side that trusts anybody; `issued` None: without a certificate."""
    context = plain(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT))
    if issued is not None:
        context.set_ciphers("ALL:@SECLEVEL=0")
        files = world.files(issued)
        context.load_cert_chain(str(files.cert), str(files.key))
    return context


def shaken(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> tuple[str | None, str, Any, Any]:
    """Return which side refuses the other, why, and the certificates of client and server as the other sees them."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = {
        "client": client.wrap_bio(to_client, to_server, server_hostname=host),
        "server": server.wrap_bio(to_server, to_client, server_side=True),
    }
    for _ in range(8):
        for name, side in sides.items():
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return name, handshake_trouble(error), None, None
    try:
        asks, answers = sides["server"].getpeercert(), sides["client"].getpeercert()
    except ssl.SSLError as error:
        return "certificate", str(error), None, None
    reasons = {"client": unverified(client, answers), "server": unverified(server, asks)}
    return next(((name, why, asks, answers) for name, why in reasons.items() if why), (None, "", asks, answers))


@attrs.frozen
class Case:
    """What the other side shows, who refuses it and why; `ours` are options of our own files."""

    shows: Callable[[World], Issued | None]
    refused_by: str | None = None
    words: str = ""
    ours: Callable[[World], Mapping[str, Any]] = lambda world: {}
    version: ssl.TLSVersion | None = None
    ciphers: str = ""
    trust: Mapping[str, Any] = attrs.Factory(dict)
    host: str = "127.0.0.1"


def shows(*uris: str, **how: Any) -> Callable[[World], Issued]:
    return lambda world: world.root.issue(*uris, **how)


def crl(*, ends: timedelta = DAY, begins: timedelta = -DAY) -> Callable[[World], Mapping[str, Any]]:
    return lambda world: {"crl": world.root.revoke(ends=ends, begins=begins)}


def all_lists(*serials: int) -> Callable[[World], Mapping[str, Any]]:
    return lambda world: {
        "crl": world.below.revoke() + world.root.revoke(*(serials or [world.below.certificate.serial_number]))
    }


@functools.cache
def one_of(world: World) -> Issued:
    return world.root.issue(BLUE_2)


ENDED: Final = "certificate has expired"
EARLY: Final = "certificate is not yet valid"
NOBODY: Final = "unable to get local issuer certificate"
PURPOSE: Final = "(unsuitable|unsupported) certificate purpose"
UNNAMED: Final = "its certificate names no replica"

CHAINS: Final[dict[str, Case]] = {
    "right": Case(shows(BLUE_2)),
    "expired": Case(shows(BLUE_2, ends=-HOUR), "ours", ENDED),
    "not yet valid": Case(shows(BLUE_2, begins=HOUR, ends=2 * DAY), "ours", EARLY),
    "another authority": Case(lambda w: w.foreign.issue(BLUE_2), "ours", NOBODY),
    "another authority, sent along": Case(lambda w: below(w.foreign, w.foreign), "ours", "self.signed certificate in"),
    "an authority of the same name": Case(lambda w: w.namesake.issue(BLUE_2), "ours", NOBODY),
    "the certificate of an authority": Case(
        lambda w: Issued(w.foreign.pem, key_of(w.foreign), 0), "ours", "self.signed certificate"
    ),
    "an authority below": Case(lambda w: below(w.below, w.below)),
    "an authority below, not sent along": Case(lambda w: w.below.issue(BLUE_2), "ours", NOBODY),
    "an authority below that has ended": Case(lambda w: below(w.ended, w.ended), "ours", ENDED),
    "an authority too deep": Case(
        lambda w: below(w.too_deep, w.too_deep, w.below), "ours", "path length constraint exceeded"
    ),
    "issued by a replica": Case(lambda w: issued_by_a_replica(w), "ours", "invalid CA certificate"),
    "an authority that has ended": Case(
        lambda w: w.old.issue(BLUE_2), "ours", ENDED, lambda w: {"ca": w.root.pem + w.old.pem}
    ),
    "an authority that is not valid yet": Case(
        lambda w: w.early.issue(BLUE_2), "ours", EARLY, lambda w: {"ca": w.root.pem + w.early.pem}
    ),
    "the second of two authorities": Case(
        lambda w: w.foreign.issue(BLUE_2), None, "", lambda w: {"ca": w.root.pem + w.foreign.pem}
    ),
    "usage of both sides": Case(shows(BLUE_2, usages=[SERVER, CLIENT])),
    "usage of another kind": Case(shows(BLUE_2, usages=[SIGNING]), "ours", PURPOSE),
    "a weak key": Case(lambda w: w.root.issue(BLUE_2, key=w.weak_key), "ours", "key too weak|key too small"),
    "an unknown critical extension": Case(
        shows(extensions=[x509.UnrecognizedExtension(UNKNOWN, b"\x05\x00")]), "ours", "unhandled critical extension"
    ),
    "a list that revokes nobody": Case(shows(BLUE_2), None, "", crl()),
    "revoked": Case(one_of, "ours", "certificate revoked", lambda w: {"crl": w.root.revoke(one_of(w).serial)}),
    "another one is revoked": Case(shows(BLUE_2), None, "", lambda w: {"crl": w.root.revoke(one_of(w).serial)}),
    "an expired list": Case(shows(BLUE_2), "ours", "CRL has expired", crl(ends=-HOUR)),
    "a list that is not valid yet": Case(shows(BLUE_2), "ours", "CRL is not yet valid", crl(begins=HOUR, ends=2 * DAY)),
    "a list of another authority": Case(
        shows(BLUE_2), "ours", "unable to get certificate CRL", lambda w: {"crl": w.foreign.revoke()}
    ),
    "a list with the signature of another": Case(
        shows(BLUE_2), "ours", "CRL signature failure", lambda w: {"crl": w.root.revoke(key=w.foreign.key)}
    ),
    "an authority below that is revoked": Case(
        lambda w: below(w.below, w.below), "ours", "certificate revoked", all_lists()
    ),
    "an authority below that is not revoked": Case(lambda w: below(w.below, w.below), None, "", all_lists(1)),
    "an authority below without a list": Case(
        lambda w: below(w.below, w.below), "ours", "unable to get certificate CRL", crl()
    ),
    "the list of the authority below only": Case(
        lambda w: below(w.below, w.below), None, "", lambda w: {"crl": w.below.revoke()}
    ),
    "TLS 1.3": Case(shows(BLUE_2), version=ssl.TLSVersion.TLSv1_3),
    "TLS 1.2": Case(shows(BLUE_2), version=ssl.TLSVersion.TLSv1_2),
    "TLS 1.1": Case(shows(BLUE_2), "any", "UNSUPPORTED_PROTOCOL|PROTOCOL_VERSION", version=ssl.TLSVersion.TLSv1_1),
    "TLS 1.0": Case(shows(BLUE_2), "any", "UNSUPPORTED_PROTOCOL|PROTOCOL_VERSION", version=ssl.TLSVersion.TLSv1),
    "suites without certificates": Case(
        shows(BLUE_2), "any", "NO_SHARED_CIPHER|HANDSHAKE_FAILURE", version=ssl.TLSVersion.TLSv1_2, ciphers="aNULL"
    ),
    "suites without secrets": Case(
        shows(BLUE_2), "any", "NO_SHARED_CIPHER|HANDSHAKE_FAILURE", version=ssl.TLSVersion.TLSv1_2, ciphers="eNULL"
    ),
    "a name that is no text": Case(
        shows(extensions=[x509.UnrecognizedExtension(SAN, b"\x30\x0a\x87\x04\x7f\x00\x00\x01\x86\x02\xff\xfe")]),
        "certificate",
        "its certificate has a name that is no UTF-8",
    ),
}
"""By either side, so each is two cases."""

NAMES: Final[dict[str, Case]] = {
    "another replica": Case(shows("kraft://blue/3"), "identity", "its certificate is that of 3"),
    "another cluster": Case(shows("kraft://green/2"), "identity", "its certificate is of cluster green, not blue"),
    "no URI": Case(shows(), "identity", UNNAMED),
    "a URI of another kind": Case(shows("spiffe://blue/2"), "identity", UNNAMED),
    "the right URI among several": Case(shows("spiffe://blue/2", "kraft://green/2", BLUE_2)),
    "several URIs, none right": Case(shows("kraft://blue/3", "kraft://blue/4"), "identity", "is that of 3, 4"),
    "upper-case scheme": Case(shows("KRAFT://blue/2")),
    "upper-case scheme of another replica": Case(shows("KRAFT://blue/3"), "identity", "is that of 3"),
    "upper-case cluster": Case(shows("kraft://BLUE/2"), "identity", "is of cluster BLUE, not blue"),
    "unreadable beside the right one": Case(shows("kraft://blue/2/3", BLUE_2), "identity", "names no replica: 'kraft"),
    "no id": Case(shows("kraft://blue/"), "identity", "names no replica: 'kraft://blue/' is not"),
    "an id below 0": Case(shows("kraft://blue/-2"), "identity", "names no replica: 'kraft"),
    "an id that is too long": Case(shows("kraft://blue/20000000002"), "identity", "names no replica: 'kraft"),
    "a user before the cluster": Case(shows("kraft://x@blue/2"), "identity", "names no replica: 'kraft"),
    "an escaped cluster": Case(shows("kraft://bl%75e/2"), "identity", "names no replica: 'kraft"),
    "a query": Case(shows("kraft://blue/2?x"), "identity", "names no replica: 'kraft"),
    "common name only": Case(shows(common_name=BLUE_2), "identity", UNNAMED),
    "DNS name only": Case(shows(hosts=["replica-2.blue"]), "identity", UNNAMED, host="replica-2.blue"),
    "a name listed in replicas": Case(
        shows(common_name="controllers"), trust={"replicas": frozenset({"cert:CN=controllers"})}
    ),
    "another name than is listed": Case(
        shows(common_name="broker"), "identity", UNNAMED, trust={"replicas": frozenset({"cert:CN=controllers"})}
    ),
    "a URI that looks like a listed name": Case(
        shows("cert:CN=controllers"), "identity", UNNAMED, trust={"replicas": frozenset({"cert:CN=controllers"})}
    ),
    "unnamed where that is allowed": Case(shows(), trust={"unnamed": True}),
    "another replica where unnamed is allowed": Case(
        shows("kraft://blue/3"), "identity", "is that of 3", trust={"unnamed": True}
    ),
}

SERVERS: Final[dict[str, Case]] = {
    "usage of a client only": Case(shows(BLUE_2, usages=[CLIENT]), "ours", PURPOSE),
    "usage of a server only": Case(shows(BLUE_2, usages=[SERVER])),
    "another address": Case(shows(BLUE_2, host="127.0.0.2"), "ours", "IP address mismatch"),
    "another address, host names unchecked": Case(
        shows(BLUE_2, host="127.0.0.2"), None, "", lambda w: {"check_hostname": False}
    ),
    "the right host name": Case(shows(BLUE_2, hosts=["r2.example"]), host="r2.example"),
    "another host name": Case(shows(BLUE_2, hosts=["r3.example"]), "ours", "Hostname mismatch", host="r2.example"),
    "a wildcard": Case(shows(BLUE_2, hosts=["*.b.example"]), host="r2.b.example"),
    "a wildcard of another level": Case(
        shows(BLUE_2, hosts=["*.example"]), "ours", "Hostname mismatch", host="r2.b.example"
    ),
    "the host as common name, and no DNS name": Case(
        shows(BLUE_2, hosts=[], common_name="r2.example"), host="r2.example"
    ),
    "the host as common name, and another DNS name": Case(
        shows(BLUE_2, hosts=["r3.example"], common_name="r2.example"), "ours", "Hostname mismatch", host="r2.example"
    ),
    "no certificate": Case(
        lambda w: None, "any", "NO_SHARED_CIPHER|HANDSHAKE_FAILURE", version=ssl.TLSVersion.TLSv1_2, ciphers="aNULL"
    ),
}
"""Servers that are dialled."""

CLIENTS: Final[dict[str, Case]] = {
    "usage of a server only": Case(shows(BLUE_2, usages=[SERVER]), "ours", PURPOSE),
    "usage of a client only": Case(shows(BLUE_2, usages=[CLIENT])),
    "another address": Case(shows(BLUE_2, host="127.0.0.2")),
    "no certificate": Case(lambda w: None, "ours", "PEER_DID_NOT_RETURN_A_CERTIFICATE|did not return a certificate"),
    "no certificate with TLS 1.2": Case(
        lambda w: None, "ours", "PEER_DID_NOT_RETURN|did not return a cert", version=ssl.TLSVersion.TLSv1_2
    ),
}
"""Clients that ask."""


def key_of(authority: Authority) -> bytes:
    kind = serialization.PrivateFormat.PKCS8
    return authority.key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())


def issued_by_a_replica(world: World) -> Issued:
    """The holder of a good certificate uses its key as that of an authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    replica = world.root.issue("kraft://blue/3", common_name="replica 3", key=key)
    fake = Authority(world.root.directory, key=key, name="replica 3")
    issued = fake.issue(BLUE_2)
    return attrs.evolve(issued, certificate=issued.certificate + replica.certificate)


def check(case: Case, outcome: tuple[str | None, str], *, ours: str) -> None:
    refused_by, words = outcome
    wanted = ours if case.refused_by == "ours" else case.refused_by
    assert (wanted == "any" and refused_by is not None) or refused_by == wanted, words
    assert re.search(case.words, words), words


def limited(context: ssl.SSLContext, case: Case) -> ssl.SSLContext:
    if case.version is not None:
        context.minimum_version = context.maximum_version = case.version
    if case.ciphers:
        context.set_ciphers(f"{case.ciphers}:@SECLEVEL=0")
    return context


def identified(case: Case, certificate: Any, refused_by: str | None, words: str) -> tuple[str | None, str]:
    """Return the outcome after a look at the names, as both sides take it."""
    if refused_by is not None:
        return refused_by, words
    reason = Trust(cluster_id="blue", **case.trust).complaint(certificate, 2)
    return ("identity", reason) if reason is not None else (None, "")


ASKING: Final = CHAINS | NAMES | {f"client with {name}": case for name, case in CLIENTS.items()}
DIALLED: Final = CHAINS | NAMES | {f"server with {name}": case for name, case in SERVERS.items()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ASKING)
def test_who_asks_as_replica_2(name: str, world: World) -> None:
    case = ASKING[name]
    client = limited(other(world, case.shows(world), server=False), case)
    server = server_context(world.files(**case.ours(world)))

    refused_by, words, certificate, _ = shaken(server, client, case.host)

    check(case, identified(case, certificate, refused_by, words), ours="server")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", DIALLED)
def test_who_is_dialled_as_replica_2(name: str, world: World) -> None:
    case = DIALLED[name]
    server = limited(other(world, case.shows(world), server=True), case)
    client = client_context(world.files(**case.ours(world)))

    refused_by, words, _, certificate = shaken(server, client, case.host)

    check(case, identified(case, certificate, refused_by, words), ours="client")


def test_there_are_as_many_cases_as_were_tried_by_an_attacker() -> None:
    assert len(CHAINS) + len(NAMES) + len(SERVERS) + len(CLIENTS) >= 73


# One side speaks TLS --------------------------------------------------------------------------------

TALK: Final = {
    "a frame of Kafka": b"\x00\x00\x00\x20\x00\x12\x00\x04" + bytes(28),
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "a proxy": b"CONNECT a:1 HTTP/1.1\r\n\r\n",
    "TLS of another kind": b"\x16\x07\x07\x00\x10" + bytes(16),
}


@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.parametrize("sent", TALK)
def test_plaintext_where_tls_is_spoken_is_named(sent: str, side: str, world: World) -> None:
    files = world.files()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = server_context(files) if side == "server" else client_context(files)
    how: dict[str, Any] = {"server_side": True} if side == "server" else {"server_hostname": "127.0.0.1"}
    secured = context.wrap_bio(incoming, outgoing, **how)
    incoming.write(TALK[sent])
    with pytest.raises(ssl.SSLError) as caught:
        secured.do_handshake()
    assert "one side speaks TLS and the other does not" in handshake_trouble(caught.value)


# Files that fit only half, at the start and while a replica runs --------------------------------------

HOLDER: Final = Holder(cluster_id="blue", node_id=1)

HALF: Final[dict[str, tuple[Callable[[World], TlsConfig], str]]] = {
    "no key": (lambda w: TlsConfig(cert="1.pem", ca="ca.pem"), "key is missing: cert, key and ca are given together"),
    "no authority": (lambda w: TlsConfig(cert="1.pem", key="1.key"), "ca is missing: cert, key and ca are given"),
    "an authority only": (lambda w: TlsConfig(ca="ca.pem"), "cert is missing: cert, key and ca are given together"),
    "a list only": (lambda w: TlsConfig(crl="crl.pem"), "cert is missing: cert, key and ca are given together"),
    "neither name nor host": (
        lambda w: attrs.evolve(w.files(), check_hostname=False, unnamed_replicas=True),
        "leaves the identity of servers unchecked",
    ),
    "no file": (lambda w: TlsConfig(), r"\[tls\] names no files, and neither server_ssl= nor client_ssl= is given"),
    "certificate and key exchanged": (lambda w: exchanged(w.files()), "they must be PEM files that fit together"),
    "an empty authority": (lambda w: written(w.files(), ca=b""), "ca='.*' cannot be used: .*; it must be a PEM file"),
    "an authority in DER": (lambda w: written(w.files(), ca=b"\x30\x82\x01"), "ca='.*' cannot be used"),
    "a directory": (lambda w: attrs.evolve(w.files(), cert=w.root.directory), "cert='.*' cannot be read: Is a direc"),
    "a list that is none": (
        lambda w: written(w.files(crl=w.root.revoke()), crl=b"none"),
        "crl='.*' cannot be used: .*; it must be a PEM",
    ),
    "a certificate in place of a list": (
        lambda w: w.files(crl=w.root.pem),
        "does not pass ca='.*' and crl='.*': unable to get certificate CRL",
    ),
    "an expired list": (lambda w: w.files(crl=w.root.revoke(ends=-HOUR)), "CRL has expired; take a certificate of"),
    "an expired authority": (lambda w: w.files(w.old.issue("kraft://blue/1"), ca=w.old.pem), f"{ENDED}; take a cert"),
    "usage of a client only": (
        lambda w: w.files(w.root.issue("kraft://blue/1", usages=[CLIENT])),
        f"{PURPOSE}; .* for servers and clients",
    ),
    "usage of a server only": (
        lambda w: w.files(w.root.issue("kraft://blue/1", usages=[SERVER])),
        f"{PURPOSE}; .* for servers and clients",
    ),
    "a chain without the authority below": (lambda w: w.files(w.below.issue("kraft://blue/1")), NOBODY),
    "another replica": (lambda w: w.files(w.root.issue(BLUE_2)), "is not for replica 1: its certificate is that of 2"),
    "another cluster": (lambda w: w.files(w.root.issue("kraft://green/1")), "is of cluster green, not blue"),
}


def exchanged(files: TlsConfig) -> TlsConfig:
    return attrs.evolve(files, cert=files.key, key=files.cert)


def written(files: TlsConfig, **contents: bytes) -> TlsConfig:
    for name, data in contents.items():
        replace(getattr(files, name), data)
    return files


@pytest.mark.parametrize("name", HALF)
def test_files_that_fit_only_half_are_refused_at_the_start(name: str, world: World) -> None:
    make, message = HALF[name]
    with pytest.raises(ConfigError, match=message):
        contexts_of(make(world), None, None, Use(holder=HOLDER, insecure=True))


def rename_away(world: World, files: TlsConfig) -> None:
    assert files.cert is not None
    files.cert.rename(files.cert.with_suffix(".away"))


def issued_to(*uris: str, **how: Any) -> Callable[[World, TlsConfig], None]:
    def change(world: World, files: TlsConfig) -> None:
        issued = world.root.issue(*uris, **how)
        written(files, cert=issued.certificate, key=issued.key)

    return change


RELOADS: Final[dict[str, tuple[Callable[[World, TlsConfig], object], str]]] = {
    "renamed away": (rename_away, "cert='.*' cannot be read: No such file or directory"),
    "half a certificate": (lambda w, files: written(files, cert=w.root.pem[:100]), "PEM files that fit together"),
    "an empty key": (lambda w, files: written(files, key=b""), "PEM files that fit together"),
    "the certificate before its key": (
        lambda w, files: written(files, cert=w.root.issue("kraft://blue/1").certificate),
        "KEY_VALUES_MISMATCH",
    ),
    "another authority alone": (lambda w, files: written(files, ca=w.foreign.pem), NOBODY),
    "an empty authority": (lambda w, files: written(files, ca=b""), "ca='.*' cannot be used"),
    "an expired list": (lambda w, files: written(files, crl=w.root.revoke(ends=-HOUR)), "CRL has expired"),
    "another replica": (issued_to(BLUE_2), "is not for replica 1: its certificate is that of 2"),
    "expired": (issued_to("kraft://blue/1", ends=-HOUR), ENDED),
    "not yet valid": (issued_to("kraft://blue/1", begins=HOUR, ends=2 * DAY), EARLY),
}


@pytest.mark.parametrize("name", RELOADS)
def test_files_that_fit_only_half_leave_a_running_replica_as_it_is(name: str, world: World) -> None:
    change, message = RELOADS[name]
    files = world.files(crl=world.root.revoke())
    contexts = FileContexts(files, HOLDER)
    in_use = (contexts.server, contexts.client)

    change(world, files)

    assert re.search(f"the old ones stay in use: .*{message}", contexts.look() or "")
    assert (contexts.server, contexts.client, contexts.trust) == (*in_use, 0)
    issued = world.root.issue("kraft://blue/1")
    written(files, cert=issued.certificate, key=issued.key, ca=world.root.pem, crl=world.root.revoke())
    assert contexts.look() is None
    assert contexts.server not in in_use
