"""The appender for threads: values are gathered here, and one call on the client's loop passes many of them on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from kraftlib.errors import ClosedError
from kraftlib.runtime.client import appender as asyncio_face
from kraftlib.types import Offset

T = TypeVar("T")


class Appender(Generic[T]):
    """Appends values in the order in which they are put. Any number of threads may put.

    See `kraftlib.runtime.client.appender.Appender`, whose methods these are, without `await`. Up to `max_in_flight`
    values are on their way, and as many more are gathered here.
    """

    def __init__(
        self,
        inner: asyncio_face.Appender[T],
        *,
        submit: Callable[[Coroutine[Any, Any, None]], Future[None]],
        wait: Callable[[Coroutine[Any, Any, Offset | None]], Offset | None],
        call: Callable[[Callable[[], None]], None],
        may_wait: Callable[[], None],
    ) -> None:
        """`submit` has a coroutine run on the loop of `inner`, `wait` returns its result, and `call` calls there.

        `may_wait` raises on the thread of that loop, which would wait for itself.
        """
        self.taken = 0
        """Number of values that were put."""
        self._inner: Final = inner
        self._submit: Final = submit
        self._wait: Final = wait
        self._call: Final = call
        self._may_wait: Final = may_wait
        self._gathered: list[bytes] = []
        self._passing = False
        self._error: BaseException | None = None
        self._changed: Final = threading.Condition()
        """Guards all of the above."""

    @property
    def settled(self) -> int:
        """Number of values, from the first one on, that have reached the level that is waited for."""
        return self._inner.settled

    @property
    def end_offset(self) -> Offset | None:
        """One past the record of the last settled value; None before the first."""
        return self._inner.end_offset

    def put(self, value: T) -> None:
        """Take `value`; wait first while too many are on their way. Raises as the appender of asyncio does."""
        self.put_many((value,))

    def put_many(self, values: Iterable[T]) -> None:
        """Take `values` one after the other, each as `put` does."""
        changed = self._changed
        for value in values:
            data = self._inner.encoded(value)
            with changed:
                while self._error is None and len(self._gathered) >= self._inner.max_in_flight:
                    self._may_wait()
                    changed.wait()
                if self._error is not None:
                    raise self._error.with_traceback(None)
                self._gathered.append(data)
                self.taken += 1
                if not self._passing:
                    self._submit(self._pass_on()).add_done_callback(self._passed_on)
                    self._passing = True

    def flush(self) -> Offset | None:
        """Wait until everything that was put has settled; return `end_offset`. Raises as the one of asyncio does."""
        with self._changed:
            taken = self.taken
        return self._wait(self._inner.reach(taken))

    def close(self) -> None:
        """Send nothing more. Values on their way still settle."""
        self._end(ClosedError("the appender is closed: nothing was appended"))
        self._call(self._inner.close)

    def __enter__(self) -> Appender[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    async def _pass_on(self) -> None:
        """Put what is gathered, until nothing is."""
        while True:
            with self._changed:
                gathered, self._gathered = self._gathered, []
                self._passing = bool(gathered)
                self._changed.notify_all()
            if not gathered:
                return
            await self._inner.put_encoded(gathered)

    def _passed_on(self, passed: Future[None]) -> None:
        error = ClosedError("the client was closed") if passed.cancelled() else passed.exception()
        if error is not None:
            self._end(error)

    def _end(self, error: BaseException) -> None:
        with self._changed:
            if self._error is None:
                self._error = error
            self._gathered.clear()
            self._changed.notify_all()
