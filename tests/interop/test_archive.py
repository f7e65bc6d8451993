"""An archive of real Kafka: what its controllers forget is kept, through kills of the archive and of the leader."""

from __future__ import annotations

import sys

import pytest

from kraftlib.archive.directory import find_archives
from kraftlib.archive.report import describe
from kraftlib.types import Endpoint
from tests.interop.lab import BUSY, Lab
from tests.interop.logs import assert_equal_logs
from tests.interop.ours import ROOT
from tests.interop.processes import Process, wait_for


class Archive(Process):
    """`kraftlib archive follow` as a process."""

    def __init__(self, lab: Lab, servers: list[Endpoint], *words: str) -> None:
        self.root = lab.home / "history"
        where = ["--bootstrap", ",".join(map(str, servers)), "--directory", str(self.root)]
        super().__init__(
            [sys.executable, "-m", "kraftlib.cli", "archive", "follow", *where, "--segment-bytes", "65536", *words],
            log=lab.home / f"archive{len(words)}.log",
            environment={"PYTHONPATH": str(ROOT)},
        )

    @property
    def end_offset(self) -> int:
        """One past the last record that it has."""
        found = find_archives(self.root) if self.root.is_dir() else []
        ranges = describe(found[0]).ranges if found else ()
        return ranges[-1].end_offset if ranges else 0


@pytest.mark.each_release
def test_an_archive_of_kafka_has_every_committed_batch_through_kills(lab: Lab) -> None:
    pytest.importorskip("pyarrow", reason="the state is folded with the extra `spark`")
    from kraftlib.analysis.metadata_state import metadata_state
    from kraftlib.analysis.reports import report

    quorum = lab.static(kafka=[1, 2], ours=[3], properties=BUSY)
    quorum.start()
    quorum.leading_controller()
    servers = [node.endpoint for node in quorum.nodes.values()]
    archive = Archive(lab, servers)
    lab.keep(archive)
    archive.start()
    wait_for("the first records", lambda: archive.end_offset > 10)
    archive.kill()
    before = archive.end_offset

    archive.start()
    wait_for("more records", lambda: archive.end_offset > before + 5)
    leader = quorum.leading_controller()
    quorum.nodes[leader["leader_id"]].kill()
    quorum.leader(not_id=leader["leader_id"])
    wait_for("records of the next leader", lambda: archive.end_offset > before + 15)
    archive.kill()
    once = Archive(lab, servers, "--once")
    lab.keep(once)
    once.start()
    wait_for("archive follow --once", lambda: not once.running)
    assert once.status == 0, once.log_text()

    (node,) = quorum.controllers  # the one that was not killed
    node.stop()
    (kept,) = find_archives(archive.root)
    ranges = describe(kept).ranges
    assert [(one.start_offset, one.end_offset) for one in ranges] == [(0, once.end_offset)]
    assert assert_equal_logs(kept.partition, node.partition, end_offset=once.end_offset) > 15
    state = metadata_state(kept.path)
    assert len(state) > 3
    assert report(kept.path, "features").num_rows == report(node.directory, "features").num_rows
