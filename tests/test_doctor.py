"""What is wrong with a replica is said before it starts, with what to do."""

from __future__ import annotations

import datetime
import socket
from pathlib import Path
from typing import Any

import attrs
import pytest

from kraftlib.config import RaftConfig
from kraftlib.doctor import Grade, examine
from kraftlib.plain_values import parse_voters
from kraftlib.security.access import AccessConfig
from kraftlib.security.sasl import SaslConfig
from kraftlib.storage.directory import format_directory
from kraftlib.storage.lock import DirectoryLock
from kraftlib.types import Endpoint
from tests.security.authority import Authority

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


def config(tmp_path: Path, **settings: Any) -> RaftConfig:
    """A replica whose directory is formatted, unless another one is given."""
    home = settings.pop("directory", tmp_path / "replica-1")
    if home == tmp_path / "replica-1":
        format_directory(home, node_id=1, cluster_id=CLUSTER, static_voters=[1])
    return RaftConfig(node_id=1, directory=home, **settings)


def told(config: RaftConfig, subject: str) -> list[tuple[Grade, str]]:
    return [(finding.grade, finding.text) for finding in examine(config) if finding.subject == subject]


def grades(config: RaftConfig, subject: str) -> list[Grade]:
    return [grade for grade, _ in told(config, subject)]


def test_of_a_sound_replica_nothing_is_wrong(tmp_path: Path) -> None:
    found = list(examine(config(tmp_path, retention_bytes=0, segment_bytes=8 << 20)))

    assert {finding.subject for finding in found} >= {"libraries", "directory", "disk", "access"}
    assert [finding for finding in found if finding.grade is Grade.ERROR] == []


def test_a_directory_that_is_not_this_replicas_is_an_error(tmp_path: Path) -> None:
    ((grade, text),) = told(config(tmp_path, directory=tmp_path / "new"), "directory")
    assert (grade, "is not formatted: see kraftlib format" in text) == (Grade.ERROR, True)
    format_directory(tmp_path / "other", node_id=2, cluster_id=CLUSTER, static_voters=[1, 2])
    ((grade, text),) = told(config(tmp_path, directory=tmp_path / "other"), "directory")
    assert (grade, "node" in text) == (Grade.ERROR, True)
    assert grades(config(tmp_path, directory=None), "directory") == [Grade.WARNING]


def test_a_replica_that_runs_is_left_alone(tmp_path: Path) -> None:
    made = config(tmp_path)
    lock = DirectoryLock.acquire(tmp_path / "replica-1")
    try:
        assert "a replica runs in it" in told(made, "directory")[0][1]
    finally:
        lock.release()
    assert "no replica runs in it" in told(made, "directory")[0][1]


def test_a_directory_that_others_may_write_is_named(tmp_path: Path) -> None:
    made, home = config(tmp_path), tmp_path / "replica-1"
    home.chmod(0o777)
    assert (Grade.WARNING, f"others may write to {home}: chmod go-w {home}") in told(made, "directory")


def test_a_disk_that_is_too_small_or_too_slow_is_said_so(tmp_path: Path) -> None:
    assert grades(config(tmp_path, disk_reserve_bytes=1 << 60), "disk")[0] is Grade.ERROR
    made = RaftConfig(node_id=1, directory=tmp_path / "replica-1", retention_bytes=1 << 60)
    assert grades(made, "disk")[0] is Grade.WARNING


def test_a_sync_that_takes_long_beside_the_election_timeout_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(10_000))
    monkeypatch.setattr("time.perf_counter", lambda: next(times) * 0.08)
    assert (Grade.WARNING, True) in [
        (grade, "a sync takes 80.0 ms" in text) for grade, text in told(config(tmp_path), "disk")
    ]


@pytest.mark.parametrize(
    ("days", "node", "grade", "said"),
    [
        (90, 1, Grade.GOOD, "are valid for"),
        (0.25, 1, Grade.WARNING, "put a new one in its place"),
        (90, 2, Grade.ERROR, f"kraft://{CLUSTER}/1"),
    ],
)
def test_a_certificate_is_looked_over(tmp_path: Path, days: float, node: int, grade: Grade, said: str) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue(f"kraft://{CLUSTER}/{node}", ends=datetime.timedelta(days=days))
    tls = authority.files("one", issued)
    assert tls.key is not None
    tls.key.chmod(0o644)
    found = told(config(tmp_path, tls=tls, voters=parse_voters("1@127.0.0.1:9")), "tls")

    assert [each for each in found if each[0] is grade and said in each[1]], found
    if grade is not Grade.ERROR:
        assert (Grade.WARNING, f"others may read the key {tls.key}: chmod 600 {tls.key}") in found


def test_a_secret_that_others_may_read_is_an_error(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 32)
    secret.chmod(0o644)
    made = config(tmp_path, sasl=SaslConfig(secret_file=secret))
    ((grade, text),) = told(made, "sasl")
    assert (grade, f"chmod 600 {secret}" in text) == (Grade.ERROR, True)
    secret.chmod(0o600)
    assert told(made, "sasl") == [(Grade.GOOD, "this replica logs in as replica-1 with SCRAM-SHA-512")]


@pytest.mark.parametrize(
    ("settings", "grade"),
    [
        ({}, Grade.ERROR),
        ({"insecure": True}, Grade.WARNING),
        ({"insecure": True, "access": AccessConfig(anonymous="client")}, Grade.GOOD),
    ],
)
def test_a_port_that_others_reach_is_looked_over(tmp_path: Path, settings: dict[str, Any], grade: Grade) -> None:
    made = config(tmp_path, listen=Endpoint("10.1.2.3", 9093), **settings)  # named, never bound
    assert grades(made, "access") == [grade]


def test_the_unix_sockets_of_a_replica_are_looked_over(tmp_path: Path) -> None:
    voters = parse_voters(f"1@unix:{tmp_path}/1.sock,2@unix:{tmp_path}/2.sock,3@unix:{tmp_path}/3.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/2.sock")
        server.listen()
        made = config(tmp_path, voters=voters, listen=voters[0].endpoint)
        assert [grade for grade, _ in told(made, "voters")] == [Grade.GOOD, Grade.WARNING]
    assert grades(made, "access") == [Grade.GOOD]
    beside = attrs.evolve(made, voters=voters[:1], listen=Endpoint("127.0.0.1", 9192), unix_socket=tmp_path / "1.sock")
    assert told(beside, "voters") == []


def test_the_way_to_the_other_voters_is_tried(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as closed:
        up, down = server.getsockname()[1], closed.getsockname()[1]
        closed.close()
        voters = parse_voters(f"1@127.0.0.1:9191,2@127.0.0.1:{up},3@127.0.0.1:{down}")
        found = told(config(tmp_path, voters=voters, listen=Endpoint("127.0.0.1", 9192)), "voters")

    assert [grade for grade, _ in found] == [Grade.WARNING, Grade.GOOD, Grade.WARNING]
    assert "voters names 127.0.0.1:9191 for this replica, and it listens on 127.0.0.1:9192" in found[0][1]
    assert f"voter 3 is not reached at 127.0.0.1:{down}" in found[2][1]
