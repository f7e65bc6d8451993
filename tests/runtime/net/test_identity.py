"""Whose certificate may speak for whom: row 13 of the security checklist."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kraftlib import RaftClient, RaftConfig
from kraftlib.config import StaticVoter
from kraftlib.consensus.extensions.misconfiguration import claimed_id
from kraftlib.errors import NotLeaderError, OutcomeUnknownError
from kraftlib.runtime.net.identity import Identities, ReplicaName, replica_name
from kraftlib.runtime.net.transport import Peer
from kraftlib.types import Endpoint, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, UpdateRaftVoterRequest
from tests.cli.processes import free_port
from tests.runtime.quorum import PATIENCE_S, TIMING
from tools.scenarios import handmade as msg

END = OffsetAndEpoch(epoch=1, offset=1)
REQUESTS: list[Any] = [
    msg.vote(ReplicaKey(2), 3, cluster_id="blue", end=END),
    msg.begin(2, 3, cluster_id="blue"),
    msg.end(2, 3, cluster_id="blue"),
    msg.fetch(ReplicaKey(2), 3, cluster_id="blue", offset=1, last_epoch=1),
    msg.fetch_snapshot(ReplicaKey(2), 3, cluster_id="blue", snapshot=END, position=0),
    UpdateRaftVoterRequest(voter_id=2),
]


@pytest.mark.parametrize(
    ("principal", "named"),
    [
        ("kraft://blue/2", ReplicaName("blue", 2)),
        ("kraft://AAECAwQFBgcICQoLDA0ODw/12", ReplicaName("AAECAwQFBgcICQoLDA0ODw", 12)),
        (None, None),
        ("", None),
        ("node-2", None),
        ("kraft://blue", None),
        ("kraft://blue/two", None),
        ("kraft://blue/2/3", None),
        ("kraft://blue/٢", None),
        ("KRAFT://blue/2", None),
    ],
)
def test_a_certificate_names_a_replica_of_a_cluster(principal: str | None, named: ReplicaName | None) -> None:
    assert replica_name(principal) == named


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_whoever_speaks_as_a_replica_must_be_named_as_that_one(request_: Any) -> None:
    judge = Identities(cluster_id="blue")

    assert claimed_id(request_) == 2
    assert judge.complaint(Peer("there", ("kraft://blue/2",)), request_) is None
    assert judge.complaint(Peer("there"), request_) is None
    assert judge.complaint(Peer("there", ("somebody",)), request_) is None
    assert "is that of 3" in (judge.complaint(Peer("there", ("kraft://blue/3",)), request_) or "")
    assert "of cluster green" in (judge.complaint(Peer("there", ("kraft://green/2",)), request_) or "")
    assert "names no replica" in (judge.complaint(Peer("there", ("kraft://blue/x",)), request_) or "")


def test_in_strict_mode_a_certificate_without_a_name_speaks_for_nobody() -> None:
    judge = Identities(cluster_id="blue", required=True)

    assert "names no replica" in (judge.complaint(Peer("there", ("somebody",)), REQUESTS[0]) or "")
    assert judge.complaint(Peer("there", ("somebody",)), AddRaftVoterRequest()) is None


class Authority:
    """Issues certificates for loopback with a URI, as an operator's authority would."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority")])
        usage = x509.BasicConstraints(ca=True, path_length=0)
        self._certificate = self._builder(self._name, self._key).add_extension(usage, critical=True)
        self.path = directory / "authority.pem"
        self.path.write_bytes(self._signed(self._certificate))

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def _signed(self, builder: x509.CertificateBuilder) -> bytes:
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def contexts(self, uri: str) -> dict[str, ssl.SSLContext]:
        """Contexts of a replica with a certificate of this name."""
        key = ec.generate_private_key(ec.SECP256R1())
        loopback = x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))
        alternatives = x509.SubjectAlternativeName([loopback, x509.UniformResourceIdentifier(uri)])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a replica")])
        certificate = self._signed(self._builder(subject, key).add_extension(alternatives, critical=False))
        path = self._directory / f"{x509.random_serial_number()}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(certificate + private)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.verify_mode = ssl.CERT_REQUIRED
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for context in (server, client):
            context.load_cert_chain(path)
            context.load_verify_locations(self.path)
        return {"server_ssl": server, "client_ssl": client}


async def test_of_three_replicas_one_has_the_certificate_of_another_and_is_not_heard(tmp_path: Path) -> None:
    """Real certificates on real sockets: the two that are who they say elect and commit, the third reaches nobody."""
    authority = Authority(tmp_path)
    voters = tuple(StaticVoter(number, Endpoint("127.0.0.1", free_port())) for number in (1, 2, 3))
    clients: dict[int, RaftClient[bytes]] = {}
    try:
        for voter, named in zip(voters, (1, 2, 1), strict=True):
            config = RaftConfig(node_id=voter.id, voters=voters, cluster_id="blue", listen=voter.endpoint, **TIMING)
            clients[voter.id] = RaftClient(config, **authority.contexts(f"kraft://blue/{named}"))
            await clients[voter.id].start()
        leader_id = await appended_by(clients)

        assert leader_id in (1, 2)
        assert clients[3].high_watermark() in (None, 0)
        assert clients[3].log_end_offset() == 0
    finally:
        for client in clients.values():
            await client.shutdown(timeout_ms=0)


async def appended_by(clients: dict[int, RaftClient[bytes]]) -> int:
    """Append a record on whoever leads; return who that was."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for client in clients.values():
                try:
                    await client.append_one(b"heard")
                except (NotLeaderError, OutcomeUnknownError):
                    continue
                return client.node_id
            await asyncio.sleep(0.005)
