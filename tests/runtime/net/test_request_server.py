"""Requests of others, good and bad, as frames: what is answered, what is closed, what reaches the executor."""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.codec.versions import Versions
from kraftlib.config import RaftConfig
from kraftlib.errors import InvariantError
from kraftlib.records.batch import encode_batch
from kraftlib.runtime.net.api_versions import SERVED, question
from kraftlib.runtime.net.framing import LENGTH_BYTES
from kraftlib.runtime.net.hot_loops import ANSWERS_AT_ONCE
from kraftlib.runtime.net.identity import Identities
from kraftlib.runtime.net.judge import Judge
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.runtime.net.notices import Notices
from kraftlib.runtime.net.request_server import RequestServer
from kraftlib.runtime.net.transport import Destination, Peer
from kraftlib.runtime.router import Router
from kraftlib.security.access import EVERY_ROLE, NO_ROLE, AccessConfig, is_loopback_host
from kraftlib.security.audit import AuditLog
from kraftlib.security.authorizer import NEEDED, OF_REPLICAS, Authorizer
from kraftlib.testing.transport_contract import Lost, Station, station
from kraftlib.types import Endpoint
from kraftlib.wire.apis import APIS, ApiKey, ErrorCode, error_answer
from kraftlib.wire.frames import decode_request, decode_response, encode_request, encode_response
from kraftlib.wire.messages import describe_quorum
from kraftlib.wire.messages.api_versions import ApiVersionsResponse
from kraftlib.wire.messages.describe_quorum import DescribeQuorumResponse
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.raft_voters import RemoveRaftVoterRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from kraftlib.wire.messages.vote import VoteRequest
from tests.captured import RELEASES, pairs
from tests.runtime.wired import ANYWHERE, Engine, engine, fetch, fetch_answer, vote, vote_answer

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python 3.11 disapproves of
    from kafka.protocol.admin import DescribeQuorumRequest
    from kafka.protocol.metadata import ApiVersionsRequest
    from kafka.protocol.parser import KafkaProtocol

Served = tuple[Engine, Station, Destination]


@asynccontextmanager
async def served(**how: Any) -> AsyncIterator[Served]:
    """An engine, and a stranger who sends it frames."""
    hub = MemoryHub()
    async with (
        engine(MemoryTransport(hub, ANYWHERE), **how) as running,
        station(lambda at: MemoryTransport(hub, ANYWHERE)) as stranger,
    ):
        yield running, stranger, Destination(1, running.endpoint)


def request(message: Any, version: int, correlation_id: int = 9) -> bytes:
    return encode_request(message, version=version, correlation_id=correlation_id, client_id="tests")


async def test_a_request_reaches_the_executor_and_its_answer_goes_back() -> None:
    async with served() as (running, stranger, there):
        stranger.ask(there, request(vote(), 1))
        await running.until(1)
        what, request_id, message, version, peer = running.heard[0]
        assert (what, message, version, peer.address) == ("request", vote(), 1, str(stranger.endpoint))

        running.network.respond(request_id, vote_answer())
        await stranger.until_heard(1)
        assert decode_response(stranger.heard[0], api_key=ApiKey.VOTE, version=1) == (9, vote_answer())


@pytest.mark.parametrize("version", [13, 16, 17, 18])
async def test_records_leave_as_the_bytes_of_the_log(version: int) -> None:
    batches = [
        encode_batch([b"value %d" % number] * 3, base_offset=3 * number, epoch=2, timestamp_ms=1_700_000_000_000)
        for number in range(4)
    ]
    async with served() as (running, stranger, there):
        stranger.ask(there, request(fetch(), version))
        await running.until(1)
        running.network.respond_records([running.heard[0][1]], fetch_answer(), batches)
        await stranger.until_heard(1)
        records = b"".join(bytes(batch.data) for batch in batches)
        expected = encode_response(fetch_answer(records), version=version, correlation_id=9)
        assert stranger.heard == [expected]


async def test_many_fetches_are_answered_alike_each_under_its_own_number() -> None:
    records = encode_batch([b"value"], base_offset=3, epoch=2, timestamp_ms=1_700_000_000_000)
    async with served() as (running, stranger, there):
        for correlation_id in (7, 2**31 - 1, 0):
            stranger.ask(there, request(fetch(), 18, correlation_id=correlation_id))
        await running.until(3)
        running.network.respond_records([heard[1] for heard in running.heard], fetch_answer(), [records])
        await stranger.until_heard(3)
        assert stranger.heard == [
            encode_response(fetch_answer(bytes(records.data)), version=18, correlation_id=correlation_id)
            for correlation_id in (7, 2**31 - 1, 0)
        ]


async def test_a_request_is_answered_once() -> None:
    async with served(answer=lambda message: vote_answer()) as (running, stranger, there):
        stranger.ask(there, request(vote(), 2))
        await stranger.until_heard(1)
        with pytest.raises(InvariantError):
            running.network.respond(running.heard[0][1], vote_answer())


async def test_an_answer_that_does_not_fit_closes_the_connection_and_stops_nobody() -> None:
    """Version 1 of DescribeQuorum has no place for nodes."""
    node = DescribeQuorumResponse.Node(node_id=1)
    async with served(answer=lambda message: DescribeQuorumResponse(nodes=(node,))) as (running, stranger, there):
        stranger.ask(there, request(describe_quorum.DescribeQuorumRequest(), 1))
        await stranger.until_heard(2)
        assert stranger.heard == [None, Lost(there, refused=False)]
        assert running.network.trouble == {"request": 1}


async def test_no_answer_closes_the_connection() -> None:
    async with served(answer=lambda message: None) as (_, stranger, there):
        stranger.ask(there, request(vote(), 2))
        await stranger.until_heard(2)
        assert stranger.heard == [None, Lost(there, refused=False)]


# ApiVersions --------------------------------------------------------------------------------------


async def test_versions_are_told_without_the_executor() -> None:
    async with served(features=lambda: {"kraft.version": 1}) as (running, stranger, there):
        for version in range(5):
            stranger.ask(there, encode_request(question(), version=version, correlation_id=version, client_id=None))
        await stranger.until_heard(5)
        for version, frame in enumerate(stranger.heard):
            correlation_id, response = decode_response(frame, api_key=18, version=version)
            assert isinstance(response, ApiVersionsResponse)
            assert (correlation_id, response.error_code, len(response.api_keys)) == (version, 0, len(SERVED))
            levels = [(row.name, row.max_version_level) for row in response.finalized_features]
            assert levels == ([("kraft.version", 1)] if version >= 3 else [])
        assert running.heard == []


@pytest.mark.parametrize("version", [6, 99, -1, 32_767])
async def test_versions_asked_in_an_unknown_version_are_answered_as_kafka_does(version: int) -> None:
    async with served() as (_, stranger, there):
        head = b"\x00\x12" + version.to_bytes(2, "big", signed=True) + b"\x00\x00\x00\x05"
        stranger.ask(there, head + b"\x00\x03lab" + b"\xff" * 9)
        await stranger.until_heard(1)
        assert stranger.heard == [bytes.fromhex("00000005 0023 00000001 0012 0000 0005")]


async def test_a_bad_software_name_is_told_so_and_the_connection_lives() -> None:
    async with served() as (_, stranger, there):
        stranger.ask(there, bytes.fromhex("0012 0004 00000007 0003") + b"lab" + b"\x00\x04a b\x021\x00")
        stranger.ask(there, request(question(), 4))
        await stranger.until_heard(2)
        _, response = decode_response(stranger.heard[0], api_key=18, version=4)
        assert response == ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        assert decode_response(stranger.heard[1], api_key=18, version=4)[1].error_code == 0


# Others' clients ----------------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
async def test_all_that_a_real_quorum_asked_reaches_the_executor(release: str) -> None:
    """Every captured request of an API that we serve, pipelined over one connection, in order."""
    asked = [pair["request"] for pair in pairs(release, "wire")]
    async with served() as (running, stranger, there):
        expected = []
        for frame in asked:
            decoded = decode_request(frame)
            if decoded.api_key in SERVED and decoded.api_key != ApiKey.API_VERSIONS:
                expected.append((decoded.message, decoded.api_version))
                stranger.ask(there, frame)
        await running.until(len(expected))
        assert [(message, version) for _, _, message, version, _ in running.heard] == expected
        assert len({type(message) for message, _ in expected}) >= 4


async def test_kafka_python_is_served() -> None:
    """An independent client: its bytes are understood, and it understands ours."""
    answer = DescribeQuorumResponse(
        topics=(
            DescribeQuorumResponse.TopicData(
                topic_name="__cluster_metadata",
                partitions=(DescribeQuorumResponse.PartitionData(leader_id=3, leader_epoch=7, high_watermark=41),),
            ),
        )
    )
    async with served(answer=lambda message: answer) as (_, stranger, there):
        client = KafkaProtocol(client_id="kafka-python")
        topic = DescribeQuorumRequest.TopicData
        client.send_request(
            ApiVersionsRequest(version=4, client_software_name="kafka-python", client_software_version="3.0")
        )
        client.send_request(
            DescribeQuorumRequest(
                version=2,
                topics=[topic(topic_name="__cluster_metadata", partitions=[topic.PartitionData(partition_index=0)])],
            )
        )
        sent = client.send_bytes()
        while sent:
            size = int.from_bytes(sent[:LENGTH_BYTES], "big")
            stranger.ask(there, sent[LENGTH_BYTES : LENGTH_BYTES + size])
            sent = sent[LENGTH_BYTES + size :]
        await stranger.until_heard(2)
        received = b"".join(len(frame).to_bytes(LENGTH_BYTES, "big") + frame for frame in stranger.heard)
        (_, versions), (_, quorum) = client.receive_bytes(received)

        assert {row.api_key: (row.min_version, row.max_version) for row in versions.api_keys}[1] == (13, 18)
        assert quorum.topics[0].partitions[0].leader_id == 3
        assert quorum.topics[0].partitions[0].high_watermark == 41


# Bad input ----------------------------------------------------------------------------------------

GOOD = request(vote(), 2)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\x00", id="one byte"),
        pytest.param(b"\x00\x34\x00\x02", id="half a header"),
        pytest.param(GOOD[:-1], id="cut"),
        pytest.param(b"\x00\x03" + GOOD[2:], id="Metadata, which a controller does not serve"),
        pytest.param(b"\x00\x3e" + GOOD[2:], id="BrokerRegistration, which we do not serve"),
        pytest.param(b"\xff\xff" + GOOD[2:], id="API -1"),
        pytest.param(GOOD[:2] + b"\x00\x03" + GOOD[4:], id="Vote 3"),
        pytest.param(GOOD[:2] + b"\xff\xff" + GOOD[4:], id="Vote -1"),
        pytest.param(b"\x00\x01\x00\x03" + GOOD[4:], id="Fetch 3"),
        pytest.param(GOOD[:8] + b"\x7f\xff" + GOOD[10:], id="client id longer than the frame"),
        pytest.param(GOOD[:8] + b"\x00\x02\xff\xfe" + GOOD[-20:], id="client id that is no text"),
        pytest.param(b"\x00\x12\x00\x04\x00\x00\x00\x01\xff\xff\x00\xff\xff\xff\xff\x0f", id="ApiVersions cut"),
        pytest.param(b"GET / HTTP/1.1\r\n", id="HTTP without a length"),
    ],
)
async def test_what_cannot_be_served_closes_its_connection_and_no_other(
    frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(answer=lambda message: vote_answer()) as (running, stranger, there):
        stranger.ask(there, GOOD)
        stranger.ask(there, frame)
        await stranger.until_heard(3)
        assert stranger.heard[1:] == [None, Lost(there, refused=False)]
        assert running.network.trouble == {"request": 1}
        assert len(caplog.messages) == 1
        assert "\n" not in caplog.messages[0]

        stranger.ask(there, GOOD)
        await stranger.until_heard(4)
        assert stranger.heard[3] == stranger.heard[0]
        assert len(running.heard) == 2


async def test_bytes_after_a_request_are_passed_over_as_kafka_does() -> None:
    async with served(answer=lambda message: vote_answer()) as (running, stranger, there):
        stranger.ask(there, GOOD + b"more")
        await stranger.until_heard(1)
        assert running.heard[0][2] == vote()


async def test_a_client_id_cannot_forge_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    name = b"x\nCRITICAL all is lost"
    async with served() as (_, stranger, there):
        stranger.ask(there, b"\x00\x34\x00\x63\x00\x00\x00\x01" + len(name).to_bytes(2, "big") + name + b"\x00")
        await stranger.until_heard(2)
        assert "\n" not in caplog.messages[0]
        assert "CRITICAL all is lost" in caplog.messages[0]


class Silent:
    """A connection that takes notes."""

    def __init__(self) -> None:
        self.replies: list[bytes | None] = []
        self.requests: list[Any] = []

    def request_received(self, request_id: int, message: Any, version: int, peer: Peer) -> None:
        self.requests.append(message)


@given(st.data())
def test_no_bytes_raise(data: st.DataObject) -> None:
    """Noise, and captured frames with a few bytes changed: each is answered, handed on, or closes its connection."""
    frame = bytearray(data.draw(st.sampled_from(FRAMES) | st.binary(max_size=60)))
    for _ in range(data.draw(st.integers(0, 3))):
        if frame:
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))

    nobody = data.draw(st.sampled_from([EVERY_ROLE, NO_ROLE]))

    async def serve() -> Silent:
        silent, quiet = Silent(), logging.getLogger("tests.quiet")
        quiet.disabled = True
        serving = RequestServer(
            silent,  # type: ignore[arg-type]
            features=dict,
            judge=Judge(
                authorizer=Authorizer(
                    access=AccessConfig(), cluster_id=None, nobody=nobody, is_voter=lambda replica_id: True
                ),
                identities=Identities(cluster_id=None),
            ),
            audit=AuditLog(node_id=7),
            served=SERVED,
            notices=Notices(quiet, lambda: 0.0),
        )
        serving.request_received(bytes(frame), silent.replies.append, Peer("here:1"))
        return silent

    silent = asyncio.run(serve())
    assert len(silent.replies) + len(silent.requests) == 1


FRAMES = [pair["request"] for release in RELEASES for pair in pairs(release, "wire")]


# Who may ------------------------------------------------------------------------------------------


async def test_who_may_not_ask_is_told_so_and_the_executor_is_not() -> None:
    def only_fetch(peer: Peer, api_key: int) -> bool:
        return api_key == ApiKey.FETCH

    async with served(authorize=only_fetch) as (running, stranger, there):
        stranger.ask(there, request(question(), 4))
        stranger.ask(there, request(vote(), 2))
        stranger.ask(there, request(fetch(), 18))
        await running.until(1)
        assert isinstance(running.heard[0][2], FetchRequest)
        await stranger.until_heard(2)
        _, response = decode_response(stranger.heard[1], api_key=ApiKey.VOTE, version=2)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert running.network.trouble == {"denied": 1}


async def test_a_mistake_of_the_application_costs_one_connection_and_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def mistaken(peer: Peer, api_key: int) -> bool:
        raise AttributeError("replica_id\nforged")

    async with served(authorize=mistaken) as (running, stranger, there):
        for number in range(3):
            stranger.ask(there, request(vote(), 2))
            await stranger.until_heard(2 * number + 2)
        assert stranger.heard == [None, Lost(there, refused=False)] * 3
        assert running.network.trouble == {"request": 3}
        (line,) = [each for each in caplog.messages if "forged" in each]
        assert "AttributeError of our own: 'replica_id\\nforged'" in line
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("anonymous", ["observer", "everything"])
async def test_a_fetch_of_a_mere_observer_is_marked(anonymous: str) -> None:
    """The leader does not count for a voter what nobody has proven to be of that replica."""
    config = attrs.evolve(BEYOND, access=AccessConfig(anonymous=anonymous))
    async with served(config=config, is_voter=lambda replica_id: False) as (running, stranger, there):
        stranger.ask(there, request(fetch(), 18))
        await running.until(1)
        *_, peer = running.heard[0]
        assert peer.is_observer is (anonymous == "observer")
    events: list[Any] = []
    router = Router()
    router.connect_core(SimpleNamespace(submit=events.append))
    router.request_received(1, fetch(), 18, peer)
    assert events[0].of_observer is (anonymous == "observer")


BEYOND = RaftConfig(node_id=7, listen=Endpoint("0.0.0.0", 9_093))


async def test_beyond_loopback_a_stranger_is_served_nothing_but_versions(caplog: pytest.LogCaptureFixture) -> None:
    """What a client can read is answered; a request of a replica closes its connection. The executor hears of none."""
    async with served(config=BEYOND) as (running, stranger, there):
        stranger.ask(there, request(question(), 4))
        stranger.ask(there, request(RemoveRaftVoterRequest(voter_id=2), 0))
        stranger.ask(there, request(UpdateFeaturesRequest(), 1))
        stranger.ask(there, request(describe_quorum.DescribeQuorumRequest(), 2))
        await stranger.until_heard(4)
        answers = [(ApiKey.REMOVE_RAFT_VOTER, 0), (ApiKey.UPDATE_FEATURES, 1), (ApiKey.DESCRIBE_QUORUM, 2)]
        for frame, (key, version) in zip(stranger.heard[1:], answers, strict=True):
            _, response = decode_response(frame, api_key=key, version=version)
            assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        _, removal = decode_response(stranger.heard[1], api_key=ApiKey.REMOVE_RAFT_VOTER, version=0)
        assert "needs the role admin ([access] admins)" in removal.error_message

        stranger.ask(there, request(vote(), 2))
        await stranger.until_heard(6)
        assert stranger.heard[4:] == [None, Lost(there, refused=False)]
        assert running.heard == []
        assert running.network.trouble == {"denied": 4}
    assert "every peer that connects is an administrator" not in caplog.text


async def test_every_request_can_be_refused_in_every_version() -> None:
    """With an answer or by closing the connection: a refusal that does not fit would raise into the loop."""
    asked = [(key, version) for key in NEEDED for version in APIS[key].versions]
    async with served(config=BEYOND, served=dict.fromkeys(NEEDED, Versions(0, 99))) as (running, stranger, there):
        for key, version in asked:
            stranger.ask(there, request(APIS[key].request(), version))
            await stranger.until_heard(len(stranger.heard) + (2 if key in OF_REPLICAS else 1))
        assert running.heard == []
        assert running.network.trouble == {"denied": len(asked)}


@pytest.mark.parametrize(
    "config",
    [
        RaftConfig(node_id=7),
        RaftConfig(node_id=7, listen=Endpoint("::1", 9_093)),
        attrs.evolve(BEYOND, insecure=True),
        attrs.evolve(BEYOND, access=AccessConfig(anonymous="everything")),
    ],
    ids=["on loopback", "on IPv6 loopback", "insecure", "by the table"],
)
async def test_a_stranger_may_do_everything_where_that_was_said(
    config: RaftConfig, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(config=config) as (running, stranger, there):
        stranger.ask(there, request(vote(), 2))
        stranger.ask(there, request(RemoveRaftVoterRequest(voter_id=2), 0))
        await running.until(2)
        assert running.network.trouble == {}
    is_warned = "every peer that connects is an administrator" in caplog.text
    assert is_warned is not is_loopback_host(config.listen.host)


async def test_the_rule_of_the_application_opens_nothing_that_the_table_closes() -> None:
    async with served(config=BEYOND, authorize=lambda peer, api_key: True) as (running, stranger, there):
        stranger.ask(there, request(RemoveRaftVoterRequest(voter_id=2), 0))
        await stranger.until_heard(1)
        assert running.heard == []
        assert running.network.trouble == {"denied": 1}


async def test_changes_and_refusals_have_a_line_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    """A hot loop of refusals has one."""
    caplog.set_level(logging.INFO, "kraftlib.audit")
    removal, stranger_at = RemoveRaftVoterRequest(voter_id=2), ""
    access = AccessConfig(anonymous="client")
    async with served(config=attrs.evolve(BEYOND, access=access), cluster_id="blue") as (_, stranger, there):
        stranger_at = str(stranger.endpoint)
        for _ in range(20):
            stranger.ask(there, request(removal, 0))
        await stranger.until_heard(20)
    async with served(answer=lambda message: error_answer(message, 127)) as (_, stranger, there):
        stranger.ask(there, request(removal, 0))
        stranger.ask(there, request(vote(), 2))
        await stranger.until_heard(2)

    refused, left_out, answered = (
        json.loads(record.message) for record in caplog.records if record.name == "kraftlib.audit"
    )
    assert (refused["event"], refused["principals"], refused["address"]) == ("refused", [], stranger_at)
    assert (refused["request"], refused["subject"]) == ("RemoveRaftVoterRequest", "voter 2")
    assert left_out["outcome"] == "19 refusals of peers without a name have no line here"
    assert (refused["node_id"], refused["cluster_id"]) == (7, "blue")
    assert (answered["event"], answered["outcome"]) == ("answered", "VOTER_NOT_FOUND")


async def test_who_asks_in_vain_over_and_over_waits_longer_each_time() -> None:
    async with served(answer=lambda message: answer(message)) as (running, stranger, there):

        def answer(message: Any) -> Any:
            return vote_answer(granted=False) if isinstance(message, VoteRequest) else fetch_answer()

        running.network._server._hot_loops._clock = lambda: 0.0  # nothing grows back meanwhile
        for _ in range(ANSWERS_AT_ONCE):
            stranger.ask(there, request(vote(), 2))
            stranger.ask(there, request(fetch(), 18))
        await stranger.until_heard(2 * ANSWERS_AT_ONCE)
        assert running.network.trouble == {}

        stranger.ask(there, request(vote(), 2))
        await stranger.until_heard(2 * ANSWERS_AT_ONCE + 1)
        assert running.network.trouble == {"hot_loop": 1}


async def test_the_transport_is_told_which_peers_are_replicas_and_which_of_these_vote() -> None:
    told: list[tuple[str, bool]] = []

    class Knowing(MemoryTransport):
        def voters_at(self, hosts: Iterable[str]) -> None:
            raise AssertionError("nobody has told where the voters are")

        def recognized(self, peer: Peer, *, is_voter: bool) -> None:
            told.append((peer.address, is_voter))

    hub = MemoryHub()
    async with (
        engine(Knowing(hub, ANYWHERE), is_voter=lambda replica_id: replica_id == 2) as running,
        station(lambda at: MemoryTransport(hub, ANYWHERE)) as stranger,
    ):
        there = Destination(1, running.endpoint)
        partition = VoteRequest.PartitionData(replica_id=2)
        by_two = VoteRequest(topics=(VoteRequest.TopicData(partitions=(partition,)),))
        stranger.ask(there, request(FetchRequest(replica_state=FetchRequest.ReplicaState(replica_id=7)), 17))
        stranger.ask(there, request(by_two, 1))
        stranger.ask(there, request(describe_quorum.DescribeQuorumRequest(), 1))
        await running.until(3)
        assert told == [(str(stranger.endpoint), False), (str(stranger.endpoint), True)]
