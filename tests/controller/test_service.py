"""Controllers on real replicas and sockets, asked by a client that speaks Kafka's frames as a broker does."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from kraftlib import Endpoint, RaftConfig
from kraftlib.codec.declared import write
from kraftlib.controller import ControllerConfig, MetadataController, format_controller
from kraftlib.errors import ClosedError, ConfigError, DiskFullError, NotFormattedError
from kraftlib.runtime.net.transport import Peer
from kraftlib.storage.bootstrap import InitialController
from kraftlib.storage.directory import format_directory
from kraftlib.types import LeaderAndEpoch, new_uuid
from kraftlib.wire.apis import ApiKey, ErrorCode
from kraftlib.wire.frames import decode_response, encode_request, encode_response
from kraftlib.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from kraftlib.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlib.wire.messages.controller_registration import ControllerRegistrationRequest
from kraftlib.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlib.wire.messages.elect_leaders import ElectLeadersRequest
from kraftlib.wire.messages.envelope import DefaultPrincipalData, EnvelopeRequest
from kraftlib.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from tests.controller.world import World, picture
from tests.ports import free_port

PRINCIPAL = struct.pack(">h", 0) + write(DefaultPrincipalData(type="User", name="ANONYMOUS"), 0)
ORDERS = CreateTopicsRequest(
    topics=(CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=2, replication_factor=1),)
)


class Client:
    """One connection of a broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, request: Any, version: int | None = None) -> Any:
        version = request.valid_versions.last if version is None else version
        frame = encode_request(request, version=version, correlation_id=7, client_id="10")
        return decode_response(await self.exchange(frame), api_key=request.api_key, version=version)[1]

    async def exchange(self, frame: bytes) -> bytes:
        self.writer.write(struct.pack(">i", len(frame)) + frame)
        async with asyncio.timeout(20):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def forward(self, request: Any, version: int | None = None) -> Any:
        """Ask in an envelope; return the inner answer, or the error code of the envelope."""
        version = request.valid_versions.last if version is None else version
        inner = encode_request(request, version=version, correlation_id=99, client_id="admin")
        envelope = EnvelopeRequest(
            request_data=inner, request_principal=PRINCIPAL, client_host_address=bytes([127, 0, 0, 1])
        )
        answer = await self.ask(envelope)
        if answer.error_code:
            assert answer.response_data is None
            return answer.error_code
        correlation_id, message = decode_response(answer.response_data, api_key=request.api_key, version=version)
        assert correlation_id == 99
        return message


@asynccontextmanager
async def connected(place: Endpoint) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(place.host, place.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def join(client: Client, broker_id: int) -> int:
    """Register a broker and let it serve; return its epoch."""
    request = attrs.evolve(World().registration(broker_id), incarnation_id=new_uuid())
    answer = await client.ask(request)
    assert answer.error_code == 0
    beat = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=answer.broker_epoch, current_metadata_offset=1000)
    assert (await client.ask(beat)).is_fenced is False
    return int(answer.broker_epoch)


def formatted(
    home: Path, count: int, *, release: str = "4.3", controller: ControllerConfig | None = None
) -> list[MetadataController]:
    """Controllers 1 to `count` of one quorum; none is started."""
    first = [
        InitialController(number, Endpoint("127.0.0.1", free_port()), new_uuid()) for number in range(1, count + 1)
    ]
    for one in first:
        format_controller(
            home / str(one.id), node_id=one.id, cluster_id="blue", initial_controllers=first, release=release
        )
    servers = tuple(one.endpoint for one in first)
    return [
        MetadataController(
            RaftConfig(node_id=one.id, directory=home / str(one.id), listen=one.endpoint, bootstrap_servers=servers),
            controller,
        )
        for one in first
    ]


async def until_active(controllers: list[MetadataController]) -> MetadataController:
    async with asyncio.timeout(20):
        while True:
            for one in controllers:
                if one.is_active and one.state.features.metadata_version and one.state.cluster.controllers:
                    return one
            await asyncio.sleep(0)


async def test_a_broker_is_served_bare_and_in_envelopes_and_all_survives_a_restart(tmp_path: Path) -> None:
    (controller,) = formatted(tmp_path, 1)
    async with controller:
        await until_active([controller])
        async with connected(controller.client.endpoint) as client:
            await join(client, 10)
            answer = await client.forward(ORDERS)
            assert (answer.topics[0].error_code, answer.topics[0].num_partitions) == (0, 2)
            assert (await client.ask(ORDERS)).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            quorum = await client.forward(DescribeQuorumRequest())
            assert quorum.topics == () or quorum.error_code == 0
            versions = await client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
            served = {row.api_key for row in versions.api_keys}
            assert served >= {ApiKey.ENVELOPE, ApiKey.CREATE_TOPICS, ApiKey.BROKER_HEARTBEAT, ApiKey.FETCH}
            assert "metadata.version" in {row.name for row in versions.supported_features}
            assert ("metadata.version", 30) in {
                (row.name, row.max_version_level) for row in versions.finalized_features
            }
        await controller.client.create_snapshot()
        before = picture(controller.state)
    (again,) = [MetadataController(controller.client.config)]
    async with again:
        await until_active([again])
        # The registration of this controller is new; all else is as it was.
        assert {line for line in picture(again.state) if "RegisterController" not in line} == {
            line for line in before if "RegisterController" not in line
        }


async def test_requests_that_come_all_at_once_are_decided_in_order_and_none_is_refused(tmp_path: Path) -> None:
    """A decision must not be a batch of its own: more than ten batches that wait for the disk are refused."""
    (controller,) = formatted(tmp_path, 1)
    count = 30
    async with controller:
        await until_active([controller])
        async with connected(controller.client.endpoint) as client:
            await join(client, 10)
            wanted = [CreateTopicsRequest.CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=1)
                      for n in range(count)]  # fmt: skip
            frames = [
                encode_request(CreateTopicsRequest(topics=(one,)), version=7, correlation_id=number, client_id="10")
                for number, one in enumerate(wanted)
            ]
            client.writer.writelines([struct.pack(">i", len(frame)) + frame for frame in frames])
            for number in range(count):
                (size,) = struct.unpack(">i", await client.reader.readexactly(4))
                answer = await client.reader.readexactly(size)
                found, message = decode_response(answer, api_key=ApiKey.CREATE_TOPICS, version=7)
                assert isinstance(message, CreateTopicsResponse)
                assert (found, message.topics[0].error_code) == (number, 0)
        assert len(controller.state.topics.topics) == count


async def test_an_envelope_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    (controller,) = formatted(tmp_path, 1)
    async with controller, connected(controller.client.endpoint) as client:
        await until_active([controller])
        heartbeat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=1)
        assert await client.forward(heartbeat) == ErrorCode.INVALID_REQUEST  # a broker speaks for itself
        good = encode_request(ORDERS, version=7, correlation_id=1, client_id=None)
        for data, principal in ((b"", PRINCIPAL), (good[:20], PRINCIPAL), (good, None), (good, b""), (good, b"\0\1")):
            envelope = EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=b"")
            assert (await client.ask(envelope)).error_code == ErrorCode.INVALID_REQUEST
        assert controller.state.topics.named("orders") is None


async def test_a_standby_sends_brokers_on_and_the_next_controller_knows_everything(tmp_path: Path) -> None:
    controllers = formatted(tmp_path, 3)
    await asyncio.gather(*(one.start() for one in controllers))
    try:
        active = await until_active(controllers)
        standby = next(one for one in controllers if one is not active)
        async with connected(active.client.endpoint) as client, connected(standby.client.endpoint) as other:
            epoch = await join(client, 10)
            assert (await client.ask(ORDERS)).topics[0].error_code == 0
            assert await other.forward(ORDERS) == ErrorCode.NOT_CONTROLLER
            beat = BrokerHeartbeatRequest(broker_id=10, broker_epoch=epoch)
            assert (await other.ask(beat)).error_code == ErrorCode.NOT_CONTROLLER
        await active.close()
        left = [one for one in controllers if one is not active]
        following = await until_active(left)
        async with connected(following.client.endpoint) as client:
            again = await client.ask(ORDERS)
            assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            assert (await client.ask(beat)).error_code == 0, "a broker keeps its registration"
    finally:
        await asyncio.gather(*(one.close() for one in controllers))


async def test_every_controller_stands_in_the_log_also_one_that_was_never_active(tmp_path: Path) -> None:
    controllers = formatted(tmp_path, 3)
    await asyncio.gather(*(one.start() for one in controllers))
    try:
        registered = (await until_active(controllers)).state.cluster.controllers
        async with asyncio.timeout(20):
            while True:
                known = {number: record.end_points[0].port for number, record in registered.items()}
                if known == {one.client.config.node_id: one.client.endpoint.port for one in controllers}:
                    return
                await asyncio.sleep(0)
    finally:
        await asyncio.gather(*(one.close() for one in controllers))


async def test_a_directory_must_be_formatted_for_a_controller(tmp_path: Path) -> None:
    place = Endpoint("127.0.0.1", free_port())
    config = RaftConfig(node_id=1, directory=tmp_path / "1", listen=place, bootstrap_servers=(place,))
    with pytest.raises(NotFormattedError):
        await MetadataController(config).start()
    format_directory(tmp_path / "1", node_id=1, cluster_id="blue", standalone=place, release="4.4")
    with pytest.raises(ConfigError, match="kraftlib controller format"):  # a metadata.version of the future
        await MetadataController(config).start()
    with pytest.raises(ConfigError, match="directory"):
        MetadataController(RaftConfig(node_id=1, bootstrap_servers=(place,)))
    with pytest.raises(ConfigError, match="must be at least 1"):
        ControllerConfig(broker_session_timeout_ms=0)


async def test_levels_of_features_are_the_controllers_and_kraft_version_is_the_replicas(tmp_path: Path) -> None:
    (controller,) = formatted(tmp_path, 1)
    row = UpdateFeaturesRequest.FeatureUpdateKey
    async with controller:
        await until_active([controller])
        async with connected(controller.client.endpoint) as client:
            share, kraft = row(feature="share.version", max_version_level=0, upgrade_type=2), "kraft.version"
            answer = await client.forward(UpdateFeaturesRequest(feature_updates=(share,)))
            assert answer.error_code == 0
            assert controller.state.features.levels.get("share.version") is None
            same = row(feature=kraft, max_version_level=1)
            assert (await client.forward(UpdateFeaturesRequest(feature_updates=(same,)))).error_code == 0
            for wrong in ((row(feature=kraft, max_version_level=2),), (same, attrs.evolve(share, max_version_level=9))):
                answer = await client.ask(UpdateFeaturesRequest(feature_updates=wrong))
                assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION


async def test_a_refusal_fits_into_an_answer_whatever_it_quotes(tmp_path: Path) -> None:
    """A value may be as long as any string, and the connection stays."""
    (controller,) = formatted(tmp_path, 1)
    async with controller:
        await until_active([controller])
        async with connected(controller.client.endpoint) as client:
            await join(client, 10)
            await client.ask(ORDERS)
            row = IncrementalAlterConfigsRequest
            change = row.AlterableConfig(name="retention.ms", value="1" * 32_767)
            resource = row.AlterConfigsResource(resource_type=2, resource_name="orders", configs=(change,))
            (told,) = (await client.ask(row(resources=(resource,)))).responses
            assert told.error_code == ErrorCode.INVALID_CONFIG
            assert len(told.error_message) < 2_000
            unknown = UpdateFeaturesRequest.FeatureUpdateKey(feature="x" * 32_767, max_version_level=1)
            answer = await client.ask(UpdateFeaturesRequest(feature_updates=(unknown,)))
            assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION


async def test_elections_of_version_0_are_held(tmp_path: Path) -> None:
    """It names partitions only: preferred leaders are meant."""
    (controller,) = formatted(tmp_path, 1)
    async with controller:
        await until_active([controller])
        async with connected(controller.client.endpoint) as client:
            await join(client, 10)
            await client.ask(ORDERS)
            row = ElectLeadersRequest.TopicPartitions(topic="orders", partitions=(0, 7))
            answer = await client.ask(ElectLeadersRequest(topic_partitions=(row,)), 0)
            codes = [one.error_code for one in answer.replica_election_results[0].partition_result]
            assert codes == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_elections_of_version_0_that_are_cut_off_say_so_for_each_partition(tmp_path: Path) -> None:
    """That version has no place for one error of the whole request."""
    (controller,) = formatted(tmp_path, 1)
    async with controller:
        active = await until_active([controller])
        row = ElectLeadersRequest.TopicPartitions(topic="orders", partitions=(0,))
        asked, answers = ElectLeadersRequest(topic_partitions=(row,)), []
        active.handle_request(ORDERS, 7, Peer("here"), lambda answer: None)  # its records are not committed yet
        active.handle_request(asked, 0, Peer("here"), answers.append)
        active.leader_changed(LeaderAndEpoch(2, 1_000))
        frame = encode_response(answers[0], version=0, correlation_id=1)
        _, message = decode_response(frame, api_key=ApiKey.ELECT_LEADERS, version=0)
        (told,) = message.replica_election_results[0].partition_result
        assert told.error_code == ErrorCode.NOT_CONTROLLER


async def test_a_controller_that_is_elected_with_a_full_disk_begins_once_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception would stop its state machine until a restart, and the disks of all controllers may be full."""
    (controller,) = formatted(tmp_path, 1)

    def full(epoch: int, values: Any) -> int:
        raise DiskFullError("no space")

    async with controller:
        active = await until_active([controller])
        with monkeypatch.context() as patch:
            patch.setattr(active.client, "prepare_append", full)
            active.leader_changed(active.client.leader_and_epoch())
            assert not active.is_active
            answers: list[Any] = []
            active.handle_request(ORDERS, 7, Peer("here"), answers.append)
            assert answers[0].topics[0].error_code == ErrorCode.NOT_CONTROLLER
        await active.wait_until_active(timeout_ms=20_000)
        active.leader_changed(LeaderAndEpoch(None, 1_000))
        assert not active.is_active


async def test_brokers_that_die_together_are_fenced_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller looks once in a tick; what it finds then does not wait for the next one."""
    monkeypatch.setattr("kraftlib.controller.service.TICK_S", 1.0)
    (controller,) = formatted(tmp_path, 1, controller=ControllerConfig(broker_session_timeout_ms=3_000))
    async with controller:
        active = await until_active([controller])
        async with connected(active.client.endpoint) as client:
            for number in range(40):
                await join(client, number)
        async with asyncio.timeout(20):
            while True:
                if all(broker.fenced for broker in active.state.cluster.brokers.values()):
                    break
                await asyncio.sleep(0.1)


async def test_a_snapshot_is_written_in_the_versions_that_are_committed(tmp_path: Path) -> None:
    """A raised metadata.version may never be committed: nodes of before must be able to read the snapshot."""
    (controller,) = formatted(tmp_path, 1, release="3.9")
    async with controller:
        active = await until_active([controller])
        async with connected(controller.client.endpoint) as client:
            await join(client, 10)
        before = list(active.freeze())
        level = UpdateFeaturesRequest.FeatureUpdateKey(feature="metadata.version", max_version_level=30, upgrade_type=1)
        active.handle_request(UpdateFeaturesRequest(feature_updates=(level,)), 2, Peer("here"), lambda answer: None)
        assert active.state.features.metadata_version == 30
        assert list(active.freeze()) == before


async def test_a_quota_of_a_client_id_is_that_of_the_client_behind_the_broker(tmp_path: Path) -> None:
    (controller,) = formatted(tmp_path, 1)
    async with controller:
        await until_active([controller])
        async with connected(controller.client.endpoint) as client:
            await join(client, 10)
            row = AlterClientQuotasRequest
            entity = (row.EntityData(entity_type="client-id", entity_name="admin"),)
            change = row.OpData(key="controller_mutation_rate", value=0.001)
            await client.ask(row(entries=(row.EntryData(entity=entity, ops=(change,)),)))
            assert (await client.forward(ORDERS)).topics[0].error_code == 0
            another = CreateTopicsRequest(topics=(attrs.evolve(ORDERS.topics[0], name="another"),))
            answer = await client.forward(another)
            assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert answer.throttle_time_ms > 1_000_000
            assert (await client.ask(another)).topics[0].error_code == 0, "the broker itself has no quota"


async def test_kraft_version_and_other_features_are_raised_in_one_request(tmp_path: Path) -> None:
    """`kafka-features upgrade --release-version` asks so; nothing is changed where one of them is refused."""
    (controller,) = formatted(tmp_path, 1, release="3.9")
    async with controller:
        await until_active([controller])
        async with connected(controller.client.endpoint) as client:

            async def ask(version: int = 2, **levels: int) -> Any:
                row = UpdateFeaturesRequest.FeatureUpdateKey
                rows = tuple(
                    row(feature=name.replace("_", "."), max_version_level=level) for name, level in levels.items()
                )
                return await client.ask(UpdateFeaturesRequest(feature_updates=rows), version)

            levels = controller.state.features.levels
            assert (await ask(kraft_version=1, metadata_version=31)).error_code == ErrorCode.INVALID_UPDATE_VERSION
            assert (await ask(kraft_version=2, metadata_version=30)).error_code == ErrorCode.INVALID_UPDATE_VERSION
            assert levels.get("metadata.version") == 21
            assert (await ask(kraft_version=1, metadata_version=30)).error_code == 0
            assert levels.get("metadata.version") == 30
            told = await ask(1, kraft_version=1, group_version=1)
            assert {row.feature: row.error_code for row in told.results} == {"kraft.version": 0, "group.version": 0}


async def test_a_controller_that_was_active_sends_brokers_on_at_once(tmp_path: Path) -> None:
    """Its records may never be committed, and without a quorum nothing else is: no answer waits for that."""
    (controller,) = formatted(tmp_path, 1)
    async with controller:
        active = await until_active([controller])
        active.handle_request(ORDERS, 7, Peer("here"), lambda answer: None)  # its records are not committed yet
        register = ControllerRegistrationRequest(controller_id=9)
        active.handle_request(register, 0, Peer("here"), lambda answer: None)
        active.leader_changed(LeaderAndEpoch(2, 1_000))
        answers: list[Any] = []
        active.handle_request(ORDERS, 7, Peer("here"), answers.append)
        assert [answer.topics[0].error_code for answer in answers] == [ErrorCode.NOT_CONTROLLER]


async def test_a_second_start_is_refused_and_the_controller_goes_on(tmp_path: Path) -> None:
    (controller,) = formatted(tmp_path, 1)
    async with controller:
        active = await until_active([controller])
        before = picture(active.state)
        with pytest.raises(ConfigError, match="started once"):
            await controller.start()
        assert controller.is_active
        assert {*before} <= {*picture(controller.state)}


async def test_who_waits_for_an_active_controller_hears_that_it_was_closed(tmp_path: Path) -> None:
    alone, _ = formatted(tmp_path, 2)
    with pytest.raises(ClosedError):
        await alone.wait_until_active()
    async with alone:
        waiting = asyncio.create_task(alone.wait_until_active())
        await asyncio.sleep(0)
    with pytest.raises(ClosedError):
        await waiting
    (controller,) = formatted(tmp_path / "one", 1)
    async with controller:
        await controller.wait_until_active(timeout_ms=20_000)
    assert not controller.is_active


async def test_a_voter_that_is_gone_is_removed_though_decisions_wait_for_a_commit(tmp_path: Path) -> None:
    """Of two voters one is gone: nothing is committed, and only its removal helps, which stands behind decisions."""
    pair = [
        MetadataController(attrs.evolve(one.client.config, fetch_timeout_ms=30_000)) for one in formatted(tmp_path, 2)
    ]
    await asyncio.gather(*(one.start() for one in pair))
    try:
        active = await until_active(pair)
        await active.wait_until_active(timeout_ms=20_000)
        (other,) = [one for one in pair if one is not active]
        gone = other.client.key
        await other.close()
        for number in (8, 9):  # the first of them is written, and the second waits until that is committed
            register = ControllerRegistrationRequest(controller_id=number)
            active.handle_request(register, 0, Peer("here"), lambda answer: None)
            for _ in range(3):
                await asyncio.sleep(0)
        await active.client.remove_voter(gone, timeout_ms=20_000)
        assert active.is_active
        async with asyncio.timeout(20):
            await active.wait_until_active()
    finally:
        await asyncio.gather(*(one.close() for one in pair))
