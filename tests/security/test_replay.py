"""Row 17 of the security checklist: captured requests that are sent again on new connections do no harm."""

from __future__ import annotations

from typing import Any

from kraftlib.testing.campaign import quiet
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.vote import VoteRequest
from tools.scenarios.scenario import Chapter
from tools.scenarios.story import Story

CAPTURED = (VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest, FetchSnapshotRequest)


def test_row_17_captured_requests_are_replayed_in_another_order_and_much_later() -> None:
    chapter = Chapter()

    @chapter("R17", "requests are captured and sent again", expected="every promise is kept", observers=1)
    def told(story: Story) -> None:
        captured: list[tuple[int, Any]] = []

        def capture(source: int, target: int, message: Any) -> None:
            if isinstance(message, CAPTURED) and target in story.world.nodes:
                captured.append((target, message))

        story.world.network.meddler = capture
        for _ in range(4):
            leader = story.leader()
            story.append(3)
            story.snapshot(leader)
            story.crash(leader)
            story.append(1)
            story.start(leader)
            for target, message in story.random.sample(captured, min(60, len(captured))):
                if story.node(target).is_up:
                    story.puppet.ask(story.node(target), message)
                    story.happened("request sent again")
                story.pass_ms(story.random.randint(0, 1))
        story.world.network.meddler = None

    for seed in range(4):
        with quiet():
            report = Story(chapter.scenarios[0], seed).run()
        assert report.provoked["request sent again"] > 100
