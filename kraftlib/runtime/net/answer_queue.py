"""Answers leave in the order of their requests, whenever they are given.

Kafka's clients match answers by their order on the connection. A replica answers a Vote at once and holds a Fetch for
up to half a second, so an answer that is ready waits here for the answers before it. Every transport uses this module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kraftlib.errors import InvariantError
from kraftlib.runtime.net.transport import Frame


class Answer:
    """The place of one answer in its connection's order; call it with the frame. It is a `Reply`."""

    __slots__ = ("_queue", "frame", "given")

    def __init__(self, queue: AnswerQueue) -> None:
        self._queue = queue
        self.given = False
        """Whether the answer is here, be it a frame or the wish to close."""
        self.frame: Frame | None = None

    def __call__(self, frame: Frame | None) -> None:
        """Give the answer. None: close the connection when its turn comes. Does nothing if the connection is gone."""
        if self.given:
            raise InvariantError("a request is answered once")
        self.given = True
        self.frame = frame
        self._queue.given(self)


class AnswerQueue:
    """The outstanding answers of one connection.

    `send` takes frames whose turn has come, always at least one. `hang_up` is called instead of the rest when the turn
    of a None comes. `waits` is called when an answer has been given before its turn.
    """

    __slots__ = ("_hang_up", "_send", "_waits", "unsent", "waiting_bytes")

    def __init__(
        self,
        send: Callable[[Sequence[Frame]], None],
        hang_up: Callable[[], None],
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        self.unsent: deque[Answer] | None = deque()
        """The requests that are unanswered, or answered before their turn; None once the connection is gone."""
        self._send = send
        self._hang_up = hang_up
        self._waits = waits
        self.waiting_bytes = 0
        """Bytes of the answers that were given before their turn."""

    def __len__(self) -> int:
        """Number of requests that are unanswered, or answered before their turn."""
        return len(self.unsent) if self.unsent is not None else 0

    def expect(self) -> Answer:
        """Return the place of the next answer."""
        answer = Answer(self)
        if self.unsent is not None:
            self.unsent.append(answer)
        return answer

    def drop(self) -> None:
        """Forget all answers: the connection is gone. Later answers are dropped."""
        self.unsent = None
        self.waiting_bytes = 0

    def given(self, answer: Answer) -> None:
        """Send what can be sent now that `answer` is there."""
        answers = self.unsent
        if not answers:
            return
        if len(answers) == 1 and answer.frame is not None and answers[0] is answer:
            answers.popleft()
            self._send((answer.frame,))
            return
        if answers[0] is not answer:
            self.waiting_bytes += len(answer.frame or b"")
            self._waits()
            return
        frames: list[Frame] = []
        while answers and answers[0].given:
            first = answers.popleft()
            frame = first.frame
            if first is not answer:
                self.waiting_bytes -= len(frame or b"")
            if frame is None:
                self.drop()
                break
            frames.append(frame)
        if frames:
            self._send(frames)
        if self.unsent is None:
            self._hang_up()
