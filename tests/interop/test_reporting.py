"""What runs against real Kafka leave behind, and what is read in frames: the parts that need no Kafka."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from kraftlib.types import Endpoint
from tests.interop.frames import Seen, habits, strange_habits
from tests.interop.page import tables
from tests.interop.processes import free_ports, wait_for
from tests.interop.results import merged
from tests.interop.side_by_side import main, points
from tests.interop.wire import Wire, frames


def row(**changed: Any) -> dict[str, Any]:
    """Return what a test leaves behind."""
    return {
        "area": "voters", "test": "a voter votes", "text": "It votes.", "release": "4.3.1", "case": "static",
        "outcome": "passed", "seconds": 1.0, "figures": {}, "date": "2026-11-21", **changed,
    }  # fmt: skip


def test_of_one_test_the_later_outcome_counts() -> None:
    earlier = [row(outcome="failed"), row(case="dynamic")]
    assert merged(earlier, [row(figures={"records": 3})]) == [row(figures={"records": 3}), row(case="dynamic")]


def test_the_page_has_a_column_for_each_release_and_a_line_for_each_case() -> None:
    rows = [
        row(figures={"records": 3}),
        row(case="dynamic", outcome="failed"),
        row(release="3.9.2"),
        row(release="4.10.0", test="another", text="", area="strange"),
    ]
    page = tables({"kraftlib": "1.0", "cpus": 2, "java": "17", "rows": rows})

    assert "3 of 4 passed" in page
    assert "| what was tried | 3.9.2 | 4.3.1 | 4.10.0 |" in page
    assert "| It votes. | passed | static: passed (records: 3)<br>dynamic: failed | not tried |" in page
    assert "### Strange" in page


def frame(sender: int, **body: Any) -> Seen:
    """A Fetch of somebody."""
    return Seen(sender=sender, kind="request", version=18, name="Fetch", same=True, header={}, body=body)


def test_a_constant_of_kafkas_that_is_none_of_ours_is_a_strange_habit() -> None:
    who = {"topics": [{"replicaId": 1}], "nodeEndpoints": [{"nodeId": 1}]}
    theirs = habits([frame(1, maxWaitMs=500, offset=number, **who) for number in range(5)])

    assert strange_habits(theirs, habits([frame(3, maxWaitMs=500, offset=99, topics=[{"replicaId": 3}])])) == []
    assert strange_habits(theirs, habits([frame(3, nodeEndpoints=[{"nodeId": 3}])])) == []
    assert strange_habits(theirs, habits([frame(3, maxWaitMs=0, offset=1)])) == [], "a deliberate habit of ours"
    (told,) = strange_habits(theirs, habits([frame(3, maxWaitMs=400, offset=1)]))
    assert "maxWaitMs: ['400'], Kafka ['500']" in told
    (told,) = strange_habits(theirs, habits([frame(3, surprise=1)]))
    assert "where Kafka sends nothing" in told


def test_rates_are_medians_and_ours_is_a_multiple_of_theirs() -> None:
    def trials(*rates: float) -> dict[int, list[dict[str, Any]]]:
        return {16: [{"commits_per_s": rate, "p50_us": 1.0, "leader_cpu_us": 9.0} for rate in rates]}

    first, second = points({"Kafka": trials(100, 50, 900), "kraftlib": trials(200, 300, 250)})

    assert (first["who"], first["commits_per_s"], first["ours_is"]) == ("kraftlib", 250, 1)
    assert (second["who"], second["commits_per_s"], second["ours_is"]) == ("Kafka", 100, 2.5)


@pytest.mark.parametrize("arguments", ["--against kafka,paxos", "--callers 1,0"])
def test_a_bench_that_cannot_be_is_refused(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments.split())
    assert arguments.split()[1].rpartition(",")[2] in capsys.readouterr().err


def test_frames_pass_through_the_wire_and_are_kept_until_somebody_is_cut_off() -> None:
    front, behind = (Endpoint("127.0.0.1", port) for port in free_ports(2))
    wire = Wire()
    with socket.create_server((behind.host, behind.port)) as server:
        threading.Thread(target=echo, args=(server,), daemon=True).start()
        wire.place(3, front=front, behind=behind)
        try:
            with socket.create_connection((front.host, front.port), timeout=20) as client:
                request = b"\x00\x34\x00\x02\x00\x00\x00\x05\x00\x0draft-client-7\x00"
                client.sendall(len(request).to_bytes(4, "big") + request)
                assert next(frames(client)) == request
                (pair,) = wait_for("the pair", lambda: wire.pairs)
                assert (pair.asker, pair.asked, pair.api_key, pair.version) == (7, 3, 52, 2)
                assert pair.request == pair.response == request
                wire.isolate(7)
                assert client.recv(1) == b""
        finally:
            wire.close()


def echo(server: socket.socket) -> None:
    """Send back the frames of one connection."""
    connection, _ = server.accept()
    with connection:
        for frame in frames(connection):
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
