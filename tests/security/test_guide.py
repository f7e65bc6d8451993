"""The set-ups of `docs/reference/security.md` work as they stand there: three replicas elect, commit, and refuse."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import stat
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from kraftlib import RaftClient, RaftConfig
from kraftlib.find_leader import find_leader
from kraftlib.security.audit import KEYS
from kraftlib.types import OffsetAndEpoch, ReplicaKey, parse_endpoint
from kraftlib.wire.apis import ApiKey, ErrorCode
from kraftlib.wire.frames import decode_response, encode_request
from kraftlib.wire.messages.raft_voters import RemoveRaftVoterRequest
from tests.ports import free_port
from tests.runtime.quorum import PATIENCE_S
from tests.security.test_identity_matrix import answer_to
from tests.security.test_strangers import answer_to_plaintext, scene_of
from tests.snippets import blocks
from tools.scenarios import handmade as msg

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "security.md"
CLUSTER: Final = "MkU3OEVBNTcwNTJENDM2Qg"
END: Final = OffsetAndEpoch(epoch=1, offset=2**40)


def block(name: str) -> str:
    """Return the block of the page that is marked as this set-up."""
    (found,) = [each.text for each in blocks(PAGE.read_text(encoding="utf-8")) if each.remark == f"set-up: {name}"]
    return found


def here(text: str, ports: dict[int, int]) -> str:
    """Return a set-up for this machine: the addresses of each replica become loopback and a free port."""
    text = re.sub(r"10\.0\.0\.([123]):9093", lambda found: f"127.0.0.1:{ports[int(found[1])]}", text)
    text = re.sub(r"127\.0\.0\.1:909([123])", lambda found: f"127.0.0.1:{ports[int(found[1])]}", text)
    return re.sub(r"10\.0\.0\.[$a-z0-9]+", "127.0.0.1", text)


def config_of(node_id: int, text: str, home: Path) -> RaftConfig:
    """Return the configuration of a replica: the one of replica 1 in the page, with another number."""
    assert text.count("replica-1") >= 1
    own = text.replace("node_id = 1\n", f"node_id = {node_id}\n").replace("replica-1", f"replica-{node_id}")
    listen = re.search(rf'"{node_id}@([^"]+)"', own)
    assert listen is not None
    own = re.sub(r"(?m)^listen = .*$", f'listen = "{listen[1]}"', own)
    path = home / f"replica-{node_id}.toml"
    path.write_text(re.sub(r"(?m)^directory = .*\n", "", own))  # in memory: nothing is to be formatted
    return RaftConfig.from_toml(path)


@asynccontextmanager
async def set_up(name: str, home: Path) -> AsyncIterator[dict[int, RaftClient[bytes]]]:
    ports = {number: free_port() for number in (1, 2, 3)}
    text = here(block(name), ports).replace("/run/kraft", f"{home}/run")
    clients: dict[int, RaftClient[bytes]] = {}
    try:
        async with asyncio.timeout(3 * PATIENCE_S):
            for number in (1, 2, 3):
                clients[number] = RaftClient(config_of(number, text, home))
                await clients[number].start()
            yield clients
    finally:
        for client in clients.values():
            await client.shutdown(timeout_ms=0)


def run(commands: str, home: Path) -> None:
    subprocess.run(["bash", "-euc", commands], cwd=home, check=True, capture_output=True, timeout=60)


def context(home: Path, name: str) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=home / "ca.pem")
    made.load_cert_chain(home / f"{name}.pem", home / f"{name}.key")
    return made


async def test_the_set_up_on_loopback_works_and_is_open_to_all(tmp_path: Path) -> None:
    async with set_up("loopback", tmp_path) as clients:
        scene = await scene_of(clients)
        vote = msg.vote(ReplicaKey(scene.claimed_id), scene.epoch + 1, cluster_id=CLUSTER, end=END)
        frame = encode_request(vote, version=2, correlation_id=7, client_id="x")
        answer = await answer_to_plaintext(frame, scene.endpoint(scene.leader_id))
        assert answer != b""


async def test_the_set_up_with_a_secret_works_and_no_stranger_is_heard(tmp_path: Path) -> None:
    run(block("secret command"), tmp_path)
    async with set_up("secret", tmp_path) as clients:
        scene = await scene_of(clients)
        vote = msg.vote(ReplicaKey(scene.claimed_id), scene.epoch + 1, cluster_id=CLUSTER, end=END)
        frame = encode_request(vote, version=2, correlation_id=7, client_id="x")
        assert await answer_to_plaintext(frame, scene.endpoint(scene.leader_id)) == b""
        assert await scene.is_unharmed()


async def test_the_set_up_with_certificates_works_and_lets_only_its_administrator_change_voters(tmp_path: Path) -> None:
    run(here(block("commands"), {}), tmp_path)
    async with set_up("certificates", tmp_path) as clients:
        scene = await scene_of(clients)
        there = parse_endpoint(clients[scene.leader_id].status().endpoint)
        removal = RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=scene.claimed_id)
        frame = encode_request(removal, version=0, correlation_id=7, client_id="x")
        codes: dict[str, Any] = {}
        for name in ("ann", f"replica-{scene.thief_id}"):
            answer = await answer_to(frame, there, context(tmp_path, name))
            codes[name] = decode_response(answer, api_key=ApiKey.REMOVE_RAFT_VOTER, version=0)[1]
        await answer_to_plaintext(frame, there)
        assert await scene.is_unharmed()

    assert codes.pop("ann").error_code == ErrorCode.INVALID_REQUEST, "she may, and this names no directory"
    assert [answer.error_code for answer in codes.values()] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(line["event"], line["principals"]) for line in lines] == [
        ("answered", ["https://ops.example/ann"]),
        ("refused", [f"kraft://{CLUSTER}/{scene.thief_id}"]),
        ("refused", []),
    ]
    assert [line["request"] for line in lines][1:] == ["RemoveRaftVoterRequest", "TlsHandshake"]


async def test_the_set_up_with_unix_sockets_works_for_the_user_of_the_replicas(tmp_path: Path) -> None:
    """Another user is refused by the file, and beyond it as `tests/security/test_identity_matrix.py` shows."""
    run(block("unix command").replace("/run/kraft", f"{tmp_path}/run"), tmp_path)
    async with set_up("unix", tmp_path) as clients:
        scene = await scene_of(clients)
        servers = [scene.endpoint(scene.claimed_id)]
        found = await asyncio.to_thread(find_leader, servers, timeout_s=PATIENCE_S)
        modes = [stat.S_IMODE((tmp_path / "run" / name).stat().st_mode) for name in (".", "1.sock", "2.sock", "3.sock")]
        assert await scene.is_unharmed()
    assert found == parse_endpoint(f"unix:{tmp_path}/run/{scene.leader_id}.sock")
    assert modes == [0o700, 0o600, 0o600, 0o600]


def test_the_audit_line_of_the_page_has_the_keys_of_one() -> None:
    (line,) = [each.text for each in blocks(PAGE.read_text(encoding="utf-8")) if each.language == "json"]

    assert list(json.loads(line)) == list(KEYS)
