"""Who may ask a controller for what: certificates of every role on real sockets, bare and in envelopes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import struct
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from kraftlib.codec.declared import write
from kraftlib.controller import ControllerConfig, MetadataController
from kraftlib.controller.access_rules import ALLOW, LITERAL, Operation, ResourceType
from kraftlib.controller.apis import FORWARDABLE, SERVED
from kraftlib.runtime.net import shares
from kraftlib.security.access import AccessConfig
from kraftlib.types import OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import APIS, ApiKey, ErrorCode
from kraftlib.wire.error_rows import has_error_row
from kraftlib.wire.frames import decode_response, encode_request
from kraftlib.wire.messages.acls import CreateAclsRequest
from kraftlib.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftlib.wire.messages.create_topics import CreateTopicsRequest
from kraftlib.wire.messages.envelope import DefaultPrincipalData, EnvelopeRequest
from kraftlib.wire.messages.raft_voters import RemoveRaftVoterRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from tests.controller.test_service import ORDERS, Client, formatted, join, until_active
from tests.security.authority import Authority
from tools.scenarios import handmade as msg

BROKERS = {
    ApiKey.ALTER_PARTITION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
}
LOOKS = {
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
}
ADMINS = FORWARDABLE & set(SERVED) | {ApiKey.DESCRIBE_ACLS} | LOOKS
MAY = {
    "broker": BROKERS | LOOKS,
    "archive": LOOKS,
    "ann": ADMINS,
    "service": LOOKS,
    "controller": {ApiKey.CONTROLLER_REGISTRATION} | LOOKS,
    "somebody": LOOKS,
}
DENIALS = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
ACCESS = AccessConfig(
    replicas=("cert:CN=controller",),
    admins=("cert:CN=ann", "User:ann"),
    brokers=("cert:CN=broker",),
    observers=("cert:CN=archive",),
    writers=("cert:CN=service",),
)


@attrs.frozen
class Lab:
    """An active controller that knows peers by their certificates."""

    controller: MetadataController
    authority: Authority
    audit: Path

    @asynccontextmanager
    async def client(self, common_name: str) -> AsyncIterator[Client]:
        place = self.controller.client.endpoint
        context: ssl.SSLContext = self.authority.contexts(common_name=common_name)["client_ssl"]
        reader, writer = await asyncio.open_connection(place.host, place.port, ssl=context)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()

    def lines(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [line for line in lines if line["event"] == event]


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    authority, audit = Authority(tmp_path), tmp_path / "audit.jsonl"
    tls = authority.files("1", authority.issue("kraft://blue/1"))
    (made,) = formatted(tmp_path, 1)
    access = attrs.evolve(ACCESS, audit_file=audit)
    async with MetadataController(attrs.evolve(made.client.config, tls=tls, access=access)) as controller:
        await until_active([controller])
        yield Lab(controller, authority, audit)


def is_denied(answer: Any) -> bool:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return has_error_row(answer, code) or getattr(answer, "error_code", 0) == code


def forwarded(request: Any, name: str, kind: str = "User") -> EnvelopeRequest:
    frame = encode_request(request, version=request.valid_versions.last, correlation_id=9, client_id="admin")
    principal = struct.pack(">h", 0) + write(DefaultPrincipalData(type=kind, name=name), 0)
    return EnvelopeRequest(request_data=frame, request_principal=principal, client_host_address=bytes(4))


async def test_each_role_may_ask_for_what_it_is_for(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """An answer of any kind but CLUSTER_AUTHORIZATION_FAILED says that the controller has looked at the request."""
    for name, may in MAY.items():
        async with lab.client(name) as client:
            for key, served in SERVED.items():
                request = ORDERS if key == ApiKey.CREATE_TOPICS else APIS[key].request()
                answer = await client.ask(request, served.versions.last)
                assert (not is_denied(answer) or not has_rows(answer)) or key not in may, (name, key)
                assert is_denied(answer) or key in may or not has_rows(answer), (name, key)
            envelope = await client.ask(forwarded(ORDERS, "ann"))
            assert (envelope.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED) is (name != "broker")
    assert not any(record.exc_info for record in caplog.records)


def has_rows(answer: Any) -> bool:
    """Whether an answer has a place for an error: that to an empty list of things has none."""
    rows = [getattr(answer, name) for name in ("topics", "responses", "results") if hasattr(answer, name)]
    return hasattr(answer, "error_code") or any(rows)


async def test_a_broker_works_and_can_neither_vote_nor_fetch_as_a_voter(lab: Lab) -> None:
    end = OffsetAndEpoch(epoch=1, offset=1)
    async with lab.client("broker") as client:
        await join(client, 10)
    for request, version in (
        (msg.vote(ReplicaKey(1), 3, cluster_id="blue", end=end), 2),
        (msg.fetch(ReplicaKey(1), 3, cluster_id="blue", offset=1, last_epoch=1), 17),
    ):
        async with lab.client("broker") as client:
            with pytest.raises(asyncio.IncompleteReadError):
                await client.ask(request, version)


async def test_a_broker_forges_no_principal_and_lends_no_right_that_it_lacks(lab: Lab) -> None:
    removal = RemoveRaftVoterRequest(cluster_id="blue", voter_id=1)
    async with lab.client("broker") as client:
        for kind, name in (("unix", str(os.geteuid())), ("kraft", "//blue/1"), ("cert", "CN=ann")):
            for request in (removal, ORDERS):
                assert (await client.ask(forwarded(request, name, kind))).error_code == ErrorCode.INVALID_REQUEST

        async def answer_to(request: Any, name: str) -> Any:
            answer = await client.ask(forwarded(request, name))
            version = request.valid_versions.last
            return decode_response(answer.response_data, api_key=request.api_key, version=version)[1]

        assert is_denied(await answer_to(removal, "ann")), "she may, and her broker may not"
        assert is_denied(await answer_to(ORDERS, "ANONYMOUS")), "on loopback, too"
        assert is_denied(await answer_to(ORDERS, "somebody"))
        await join(client, 10)
        assert (await answer_to(ORDERS, "ann")).topics[0].error_code == ErrorCode.NONE

    (done,) = lab.lines("answered")
    assert (done["principals"], done["subject"], done["outcome"]) == (["User:ann"], "orders", "NONE")
    assert done["forwarded_by"].startswith("cert:CN=broker at 127.0.0.1:")
    assert {tuple(line["principals"]) for line in lab.lines("refused")} == {
        ("User:ann",),
        ("User:ANONYMOUS",),
        ("User:somebody",),
        ("cert:CN=broker",),
    }
    forged = next(line for line in lab.lines("refused") if line["request"] == "EnvelopeRequest")
    assert forged["outcome"].startswith("its principal must be User:NAME")


async def test_a_peer_that_is_not_let_in_has_a_line(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", name="another")
    context: ssl.SSLContext = stranger.contexts("kraft://blue/1", trusted=[lab.authority])["client_ssl"]
    place = lab.controller.client.endpoint
    reader, writer = await asyncio.open_connection(place.host, place.port, ssl=context)
    with contextlib.suppress(OSError):
        await reader.read(1)  # until it is closed
    writer.close()
    (line,) = lab.lines("refused")
    assert (line["request"], line["principals"]) == ("TlsHandshake", [])
    assert "certificate" in line["outcome"].lower()


@pytest.fixture
async def judging(lab: Lab, tmp_path: Path) -> AsyncIterator[Lab]:
    """The same peers at a controller that judges clients by rules of access."""
    await lab.controller.close()
    options = ControllerConfig(standard_authorizer=True)
    async with MetadataController(lab.controller.client.config, options) as controller:
        await until_active([controller])
        yield attrs.evolve(lab, controller=controller)


async def test_rules_of_access_judge_clients_and_roles_judge_the_rest(judging: Lab) -> None:
    """The name of a client is that of its certificate, or what a broker says; `admins` are super users."""

    def rule(principal: str, host: str) -> CreateAclsRequest.AclCreation:
        return CreateAclsRequest.AclCreation(
            resource_type=ResourceType.TOPIC, resource_name="orders", resource_pattern_type=LITERAL, host=host,
            principal=principal, operation=Operation.CREATE, permission_type=ALLOW,
        )  # fmt: skip

    async def may(common_name: str, request: Any, for_user: str | None = None) -> bool:
        """Whether a peer, or a user whom it vouches for, gets past the rules: no broker of this cluster serves."""
        async with judging.client(common_name) as client:
            answer = await client.ask(request if for_user is None else forwarded(request, for_user))
            if for_user is not None:
                version = request.valid_versions.last
                answer = decode_response(answer.response_data, api_key=request.api_key, version=version)[1]
        return not any(has_error_row(answer, code) for code in DENIALS)

    rules = CreateAclsRequest(creations=(rule("User:CN=service", "*"), rule("User:ANONYMOUS", "0.0.0.0")))
    assert not await may("service", rules)
    assert not await may("broker", rules, "somebody")
    assert not await may("service", ORDERS)
    assert await may("ann", rules)
    assert await may("service", ORDERS)
    assert not await may("archive", ORDERS)
    assert await may("ann", ORDERS)
    assert [await may("broker", ORDERS, name) for name in ("ann", "CN=service", "bob")] == [True, True, False]
    assert await may("broker", ORDERS, "ANONYMOUS"), "a name like any other: a rule allows it from this host"
    async with judging.client("service") as client:
        denied = await client.ask(APIS[ApiKey.BROKER_HEARTBEAT].request())
        assert denied.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_no_rule_of_access_changes_the_kraft_version(judging: Lab) -> None:
    """The replica's own feature is a matter of administrators, as voters are: of the broker that forwards, too."""
    row = UpdateFeaturesRequest.FeatureUpdateKey(feature="kraft.version", max_version_level=1)
    request, denied = UpdateFeaturesRequest(feature_updates=(row,)), ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for name in ("service", "broker", "somebody"):
        async with judging.client(name) as client:
            assert (await client.ask(request)).error_code == denied
    async with judging.client("broker") as client:
        for name in ("somebody", "ann"):
            answer = await client.ask(forwarded(request, name))
            inner = decode_response(answer.response_data, api_key=request.api_key, version=2)[1]
            assert inner.error_code == denied  # type: ignore[attr-defined]
    assert {line["outcome"] for line in judging.lines("answered")} == {"CLUSTER_AUTHORIZATION_FAILED"}
    async with judging.client("ann") as client:
        assert (await client.ask(request)).error_code == ErrorCode.NONE


MANY = CreateTopicsRequest(
    topics=tuple(CreateTopicsRequest.CreatableTopic(name=f"t{number}") for number in range(3_000))
)


async def test_only_who_has_a_role_may_ask_much(lab: Lab) -> None:
    """Thousands of topics keep a controller busy for a while, even if all of them are refused."""
    async with lab.client("ann") as client:
        assert len((await client.ask(MANY)).topics) == 3_000
    async with lab.client("somebody") as client:
        with pytest.raises(asyncio.IncompleteReadError):
            await client.ask(MANY)
    async with lab.client("broker") as client:
        assert (await client.ask(forwarded(MANY, "ann"))).error_code == ErrorCode.NONE
        assert (await client.ask(forwarded(MANY, "somebody"))).error_code == ErrorCode.INVALID_REQUEST


async def test_who_is_judged_by_rules_asks_much_through_a_broker_only(
    judging: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is small has no bound there, since rules may allow all of it; a large request takes the whole share."""
    monkeypatch.setattr(shares, "AT_ONCE_S", 0.0)
    monkeypatch.setattr(shares, "SHARE", 1e-9)
    async with judging.client("broker") as client:
        for request, code in ((MANY, ErrorCode.NONE), (MANY, ErrorCode.INVALID_REQUEST), (ORDERS, ErrorCode.NONE)):
            assert (await client.ask(forwarded(request, "somebody"))).error_code == code
    async with judging.client("somebody") as client:
        with pytest.raises(asyncio.IncompleteReadError):
            await client.ask(MANY)


async def test_who_has_no_role_keeps_a_controller_busy_for_its_share_only(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "AT_ONCE_S", 0.0)
    monkeypatch.setattr(shares, "SHARE", 1e-9)
    async with lab.client("somebody") as client:
        assert is_denied(await client.ask(ORDERS))
        with pytest.raises(asyncio.IncompleteReadError):
            await client.ask(ORDERS)
    async with lab.client("somebody") as client:
        with pytest.raises(asyncio.IncompleteReadError):
            await client.ask(ORDERS)
    async with lab.client("broker") as client:
        for name, throttled in (("bob", False), ("bob", True), ("zoe", False), ("ann", False), ("ann", False)):
            code = (await client.ask(forwarded(ORDERS, name))).error_code
            assert code == (ErrorCode.THROTTLING_QUOTA_EXCEEDED if throttled else ErrorCode.NONE)
    async with lab.client("ann") as client:
        for _ in range(2):
            assert (await client.ask(ORDERS)).topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_nobody_pays_for_the_time_for_which_a_controller_waits_for_a_processor(
    judging: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share is processor time: on a busy machine a request takes long, and its sender is not at fault."""
    monkeypatch.setattr(shares, "AT_ONCE_S", 0.1)
    monkeypatch.setattr(shares, "SHARE", 1e-9)
    handle = MetadataController.handle_request

    def starved(*arguments: Any) -> None:
        time.sleep(0.2)
        handle(*arguments)

    monkeypatch.setattr(MetadataController, "handle_request", starved)
    async with judging.client("service") as client:
        for _ in range(3):
            assert has_error_row(await client.ask(ORDERS), ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def test_what_no_batch_can_hold_is_refused_without_a_trace(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    row = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    user = row(mechanism=1, iterations=4_096, salt=bytes(9 << 20), salted_password=b"x" * 32)
    tracemalloc.start()
    async with lab.client("ann") as client:
        for number in range(3):
            one = attrs.evolve(user, name=f"zoe-{number}")
            answer = await client.ask(AlterUserScramCredentialsRequest(upsertions=(one,)))
            assert answer.results[0].error_code == ErrorCode.RECORD_LIST_TOO_LARGE
    del answer
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 27 << 20, "what was not appended is not kept"
    assert not any(record.exc_info for record in caplog.records)
