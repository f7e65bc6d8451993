"""Bad input: what Kafka's own raft client answers to a wrong question, we answer, and nobody writes anything."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from kraftlib.types import parse_uuid
from tests.interop.lab import Lab, Node, Quorum
from tests.interop.processes import wait_for
from tests.interop.questions import There, broken, questions
from tests.interop.test_tools import our_status

UNLIKE: Final = {
    "FetchSnapshot: not there": "Kafka's handler fails on its own answer and says -1; ours names the error",
    "FetchSnapshot: stale epoch": "the same",
    "FetchSnapshot: other partition": "the same",
    "Fetch: the node's own id": "Kafka says -1; so do we, and name the epoch",
}
"""Where we differ, and why."""


QUIET: Final = {"metadata.max.idle.interval.ms": 0, "controller.quorum.fetch.timeout.ms": 30_000}
"""Nothing is written, and nobody stands, because the machine is busy."""

ENOUGH: Final = 2
"""Records that a new quorum has at least: LeaderChange, KRaftVersion and Voters."""


def directory_id(node: Node) -> Any:
    """Return the id of a node's directory."""
    found = re.search(r"^directory\.id=(.*)$", (node.directory / "meta.properties").read_text(), re.MULTILINE)
    assert found is not None
    return parse_uuid(found[1])


def there(lab: Lab, quorum: Quorum, who: str) -> There:
    """Describe the node that is to be asked, once the quorum has settled."""

    def settled() -> dict[str, Any] | None:
        try:
            status = our_status(quorum)
        except subprocess.CalledProcessError:
            return None  # nobody leads yet
        everything = all(voter["log_end_offset"] == status["high_watermark"] for voter in status["voters"])
        return status if everything and status["high_watermark"] > ENOUGH else None

    status = wait_for("a settled quorum", settled, every_s=0.3)
    assert status is not None
    (follower_id,) = set(quorum.nodes) - {status["leader_id"]}
    node_id, other_id = status["leader_id"], follower_id
    if who == "follower":
        node_id, other_id = other_id, node_id
    return There(
        endpoint=quorum.nodes[node_id].endpoint,
        node_id=node_id,
        directory_id=directory_id(quorum.nodes[node_id]),
        other_id=other_id,
        cluster_id=lab.cluster_id,
        epoch=status["leader_epoch"],
        end_offset=status["high_watermark"],
        vote_version=2 if lab.release.is_modern else 1,
    )


def written(node: Node) -> dict[str, bytes]:
    """Return what a replica has on disk: its log, its vote, its checkpoints."""
    return {
        path.name: path.read_bytes()
        for path in sorted(node.partition.glob("*"))
        if path.suffix in (".log", ".checkpoint") or path.name == "quorum-state"
    }


def vote_of(stored: dict[str, bytes]) -> dict[str, Any]:
    """Return the election in a quorum-state file, without what is ours alone."""
    state: dict[str, Any] = json.loads(stored["quorum-state"].splitlines()[0])
    return {name: state[name] for name in ("leaderEpoch", "leaderId", "votedId")}


@pytest.mark.each_release
@pytest.mark.parametrize("who", ["leader", "follower"])
def test_wrong_questions_have_kafkas_answers(lab: Lab, who: str) -> None:
    """70 wrong questions to Kafka's controllers and to ours, leading and following: same errors, nothing written."""
    found: dict[str, dict[str, Any]] = {}
    bytes_found: dict[str, dict[str, Any]] = {}
    for name, words in {"Kafka": {"kafka": [1, 2]}, "kraftlib": {"ours": [1, 2]}}.items():
        quorum = lab.dynamic(**words, properties=QUIET, settings={"fetch_timeout_ms": 30_000})
        quorum.start()
        asked = there(lab, quorum, who)
        node = quorum.nodes[asked.node_id]
        before = written(node)
        found[name] = {text: asked.ask(*question) for text, question in questions(asked).items()}
        bytes_found[name] = broken(asked)
        after = written(node)
        assert after.keys() == before.keys()
        assert vote_of(after) == vote_of(before)
        stored = [path for path in before if Path(path).suffix in (".log", ".checkpoint")]
        assert all(after[path].startswith(before[path]) for path in stored)
        if name == "kraftlib":  # Kafka's controllers have things of their own to write, such as who they are
            assert all(after[path] == before[path] for path in stored)
        assert there(lab, quorum, who).epoch == asked.epoch
        for one in quorum.nodes.values():
            one.kill()
    different = {
        text: (answer, found["kraftlib"][text])
        for text, answer in found["Kafka"].items()
        if answer != found["kraftlib"].get(text, answer)
    }

    assert {text: pair for text, pair in different.items() if text not in UNLIKE} == {}
    assert bytes_found["kraftlib"] == bytes_found["Kafka"]
