"""What others send cannot cost a leader its place or an epoch, where connections are bound to replicas.

Each message is also sent to an open port, where it does harm: so it is one that a leader would have believed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from kraftlib import RaftClient, RaftConfig
from kraftlib.errors import NotLeaderError, OutcomeUnknownError
from kraftlib.runtime.net.framing import framed
from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.runtime.net.transport import Destination, Reply
from kraftlib.security.access import AccessConfig
from kraftlib.security.before_login import SaslError
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.sasl_users import load_users
from kraftlib.types import Endpoint, OffsetAndEpoch, ReplicaKey, parse_endpoint
from kraftlib.wire.apis import ApiKey
from kraftlib.wire.frames import decode_response, encode_request
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest
from kraftlib.wire.messages.raft_voters import RemoveRaftVoterRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from tests.ports import local_voters
from tests.runtime.net.test_sasl_connections import log_in
from tests.runtime.net.test_tcp_server import stranger
from tests.runtime.quorum import PATIENCE_S, until
from tests.security.authority import Authority
from tests.security.test_identity_matrix import answer_to
from tools.scenarios import handmade as msg

CALM: Final[dict[str, Any]] = {"election_timeout_ms": 200, "fetch_timeout_ms": 30_000, "request_timeout_ms": 30_000}
"""So long that no leader is lost because this machine is busy."""

LONG: Final = OffsetAndEpoch(epoch=1, offset=2**40)
"""The end of a log that wins every vote."""

VERSIONS: Final = {ApiKey.VOTE: 2, ApiKey.BEGIN_QUORUM_EPOCH: 1, ApiKey.END_QUORUM_EPOCH: 1, ApiKey.FETCH: 17}


@attrs.define
class Scene:
    """Three voters with a leader, one that is spoken for, and one whose certificate another may have."""

    clients: dict[int, RaftClient[bytes]]
    leader_id: int
    epoch: int

    @property
    def claimed_id(self) -> int:
        return self.leader_id % 3 + 1

    @property
    def thief_id(self) -> int:
        return self.claimed_id % 3 + 1

    def endpoint(self, node_id: int) -> Endpoint:
        return parse_endpoint(self.clients[node_id].status().endpoint)

    async def is_unharmed(self) -> bool:
        """Whether the leader commits in its old epoch, and all know no later one."""
        appended = await self.clients[self.leader_id].append_one(b"after")
        for client in self.clients.values():
            await client.wait_for_offset(appended.last_offset)
        epochs = {client.leader_and_epoch().epoch for client in self.clients.values()}
        return appended.epoch == self.epoch and epochs == {self.epoch}


def claims(scene: Scene) -> dict[str, Any]:
    """Messages in the name of a voter, or of the leader, that each cost a leader its place if they are believed."""
    claimed, epoch = scene.claimed_id, scene.epoch
    key, end = ReplicaKey(claimed), attrs.evolve(LONG, epoch=epoch)
    return {
        "a Vote of the next epoch": msg.vote(key, epoch + 1, cluster_id="blue", end=end),
        "a Vote of a far epoch": msg.vote(key, epoch + 900_000, cluster_id="blue", end=end),
        "a pre-vote": msg.vote(key, epoch + 1, cluster_id="blue", end=end, pre_vote=True),
        "a BeginQuorumEpoch": msg.begin(claimed, epoch + 1, cluster_id="blue"),
        "the end of the next epoch": msg.end(claimed, epoch + 1, cluster_id="blue"),
        "the end of this epoch": msg.end(scene.leader_id, epoch, cluster_id="blue"),
        "an ElectionPriority": ElectionPriorityRequest(
            cluster_id="blue", leader_epoch=epoch, voter_id=claimed, priority=100
        ),
        "a Fetch": msg.fetch(key, epoch, cluster_id="blue", offset=2**40, last_epoch=epoch),
    }


@asynccontextmanager
async def three(make: Callable[[int], dict[str, Any]]) -> AsyncIterator[Scene]:
    """Run three voters, with what `make` returns for each as further options of RaftConfig."""
    voters = local_voters()
    clients: dict[int, RaftClient[bytes]] = {}
    try:
        async with asyncio.timeout(3 * PATIENCE_S):
            for voter in voters:
                config = RaftConfig(
                    node_id=voter.id, voters=voters, cluster_id="blue", listen=voter.endpoint, **CALM, **make(voter.id)
                )
                clients[voter.id] = RaftClient(config)
                await clients[voter.id].start()
            yield await scene_of(clients)
    finally:
        for client in clients.values():
            await client.shutdown(timeout_ms=0)


async def scene_of(clients: dict[int, RaftClient[bytes]]) -> Scene:
    leader = await clients[1].wait_for_leader()
    while True:
        try:
            appended = await clients[leader.leader_id or 1].append_one(b"before", timeout_ms=0)
            break
        except (NotLeaderError, OutcomeUnknownError):
            leader = await clients[1].wait_for_leader()
    for client in clients.values():
        await client.wait_for_offset(appended.last_offset)
    return Scene(clients, leader.leader_id or 1, appended.epoch)


def frame_of(request: Any) -> bytes:
    return encode_request(request, version=VERSIONS.get(request.api_key, 0), correlation_id=7, client_id="x")


def context_of(authority: Authority, *uris: str) -> ssl.SSLContext:
    return authority.contexts(*uris)["client_ssl"]


def certificates(authority: Authority) -> Callable[[int], dict[str, Any]]:
    return lambda node_id: {"tls": authority.files(f"{node_id}", authority.issue(f"kraft://blue/{node_id}"))}


@pytest.mark.parametrize("attacker", ["a stranger", "another replica"])
async def test_with_certificates_nothing_of_others_costs_the_leader_its_place_or_an_epoch(
    attacker: str, tmp_path: Path
) -> None:
    """A stranger has a certificate of the right authority, but none of a replica."""
    authority = Authority(tmp_path)
    async with three(certificates(authority)) as scene:
        uris = () if attacker == "a stranger" else (f"kraft://blue/{scene.thief_id}",)
        context = context_of(authority, *uris)
        for name, request in claims(scene).items():
            for node_id in scene.clients:
                assert await answer_to(frame_of(request), scene.endpoint(node_id), context) == b"", name
            assert await scene.is_unharmed(), name


def passwords(node_id: int) -> dict[str, Any]:
    users = {name: f"the password of {name}" for name in ("replica-1", "replica-2", "replica-3", "grafana")}
    return {"sasl": SaslConfig(password=users[f"replica-{node_id}"], users=users)}


@pytest.mark.parametrize("attacker", ["a stranger", "a client", "another replica"])
async def test_with_passwords_nothing_of_others_costs_the_leader_its_place_or_an_epoch(attacker: str) -> None:
    """A stranger has no password, and a client one that is bound to no replica."""
    async with three(passwords) as scene:
        name = {"a client": "grafana", "another replica": f"replica-{scene.thief_id}"}.get(attacker)
        own = SaslConfig(username=name, password=f"the password of {name}")
        for kind, request in claims(scene).items():
            for node_id in scene.clients:
                async with stranger(scene.endpoint(node_id)) as thief:
                    if name == f"replica-{node_id}":  # nobody logs in as the replica itself
                        with pytest.raises(SaslError):
                            await log_in(thief, load_users(own, 9, encrypted=False, insecure=False))
                        continue
                    if name is not None:
                        await log_in(thief, load_users(own, 9, encrypted=False, insecure=False))
                    thief.write(framed(frame_of(request)))
                    assert not await thief.closed_or_answered(), kind
            assert await scene.is_unharmed(), kind


@pytest.mark.parametrize("is_listed", [True, False])
async def test_who_follows_the_log_is_an_observer_of_the_table(
    is_listed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As replica 9, with a password that is bound to no replica. It reads, and a read barrier of it is confirmed."""
    access = AccessConfig(observers=("User:broker",) if is_listed else ("User:somebody",))

    def options(node_id: int) -> dict[str, Any]:
        made = passwords(node_id)
        users = {**made["sasl"].users, "broker": "the password of broker"}
        return {"sasl": attrs.evolve(made["sasl"], users=users), "access": access}

    async with three(options) as scene:
        leader = scene.clients[scene.leader_id]
        own = SaslConfig(username="broker", password="the password of broker")
        servers = tuple(map(scene.endpoint, scene.clients))
        config = RaftConfig(node_id=9, cluster_id="blue", bootstrap_servers=servers, sasl=own, **CALM)
        observer: RaftClient[bytes] = RaftClient(config)
        await observer.start()
        try:
            appended = await leader.append_one(b"for all")
            if is_listed:
                await observer.wait_for_offset(appended.last_offset)
                assert await observer.read_barrier() > appended.last_offset
            else:
                await until(lambda: "denied FETCH" in caplog.text and "('User:broker')" in caplog.text)
                assert observer.log_end_offset() == 0
        finally:
            await observer.shutdown(timeout_ms=0)
        assert await scene.is_unharmed()


@pytest.mark.parametrize("name", ["a Vote of the next epoch", "a BeginQuorumEpoch", "the end of this epoch"])
async def test_on_an_open_port_one_message_of_anybody_ends_an_epoch(name: str) -> None:
    """The red box of the documentation: so nobody but replicas may reach such a port."""
    async with three(lambda node_id: {}) as scene:
        request = claims(scene)[name]
        for node_id in scene.clients:
            await answer_to_plaintext(frame_of(request), scene.endpoint(node_id))
        await until(lambda: any(each.leader_and_epoch().epoch > scene.epoch for each in scene.clients.values()))


async def answer_to_plaintext(frame: bytes, endpoint: Endpoint) -> bytes:
    """Send a frame; return the beginning of what comes back, empty if the connection is closed."""
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    writer.write(len(frame).to_bytes(4, "big") + frame)
    try:
        return await reader.read(100)
    except OSError:
        return b""
    finally:
        writer.close()


async def test_with_certificates_replays_of_what_replicas_have_sent_are_served_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every frame that a replica sent, over the connection of a stranger, to every replica. Versions are told."""
    authority, captured = Authority(tmp_path), []
    sent = TcpTransport.send

    def capture(self: TcpTransport, destination: Destination, frame: bytes, reply: Reply) -> None:
        captured.append(bytes(frame))
        sent(self, destination, frame, reply)

    monkeypatch.setattr(TcpTransport, "send", capture)
    async with three(certificates(authority)) as scene:
        context = context_of(authority)
        frames = [frame for frame in captured if int.from_bytes(frame[:2], "big") != ApiKey.API_VERSIONS]
        kinds = {int.from_bytes(frame[:2], "big") for frame in frames}
        for frame in {frame[:2]: frame for frame in frames}.values():
            for node_id in scene.clients:
                assert await answer_to(frame, scene.endpoint(node_id), context) == b""
        assert kinds >= {ApiKey.VOTE, ApiKey.FETCH}
        assert await scene.is_unharmed()


async def test_with_certificates_voters_and_features_are_matters_of_administrators(tmp_path: Path) -> None:
    """RemoveRaftVoter and UpdateFeatures are refused to a stranger and another replica, and not to an admin."""
    authority, ann = Authority(tmp_path), "https://ops.example/ann"
    files = certificates(authority)
    audit = tmp_path / "audit.jsonl"
    access = AccessConfig(admins=(ann,), audit_file=audit)
    async with three(lambda node_id: {**files(node_id), "access": access}) as scene:
        there = scene.endpoint(scene.leader_id)
        update = UpdateFeaturesRequest.FeatureUpdateKey(feature="kraft.version", max_version_level=1)
        removal = RemoveRaftVoterRequest(cluster_id="blue", voter_id=scene.claimed_id)
        upgrade = UpdateFeaturesRequest(feature_updates=(update,), validate_only=True)
        for uris, is_allowed in {(): False, (f"kraft://blue/{scene.thief_id}",): False, (ann,): True}.items():
            for request, version in ((removal, 0), (upgrade, 1)):
                frame = encode_request(request, version=version, correlation_id=7, client_id="x")
                answer = await answer_to(frame, there, context_of(authority, *uris))
                _, response = decode_response(answer, api_key=request.api_key, version=version)
                assert (response.error_code != 31) is is_allowed  # type: ignore[attr-defined]
        assert await scene.is_unharmed()
    text = audit.read_text()
    assert text.count('"event": "refused"') == 4
    assert text.count(f'"event": "answered", "principals": ["{ann}"]') == 2
