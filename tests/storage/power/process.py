"""A child process that writes until its disk dies, and tells its parent, line by line, what it was promised.

It is forked, so that a cut costs no start of an interpreter: the parent must have no threads.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

SECONDS = 30


class Reports:
    """Where the child writes its lines; each is one write, so that none is cut in two."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, *words: object) -> None:
        """Report something that is true from now on."""
        os.write(self._descriptor, (" ".join(map(str, words)) + "\n").encode("ascii"))


class Child:
    """The process, and what it has reported so far."""

    def __init__(self, work: Callable[[Reports], None]) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            _be_child(work, Reports(writing))
        os.close(writing)
        self._descriptor = reading
        self._data = b""
        self._ended = False

    def listen(self, seconds: float) -> None:
        """Take what it reports, for so long, or until it ends."""
        deadline = time.monotonic() + seconds
        while not self._ended and (rest := deadline - time.monotonic()) > 0:
            if select.select([self._descriptor], [], [], rest)[0]:
                self._read()

    def listen_until(self, word: str) -> None:
        """Take what it reports until a line begins with `word`, or it ends."""
        deadline = time.monotonic() + SECONDS
        while not self._ended and not any(line[0] == word for line in self.lines()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {word!r} in {SECONDS} s; there came {self.lines()[-5:]}")
            self.listen(0.05)

    def kill(self) -> None:
        """kill -9, and read what it had still to say."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        while not self._ended:
            self._read()
        os.close(self._descriptor)

    def lines(self) -> list[list[str]]:
        """Return the whole lines so far, as words."""
        whole = self._data[: self._data.rfind(b"\n") + 1]
        return [line.split() for line in whole.decode("ascii").splitlines()]

    def _read(self) -> None:
        data = os.read(self._descriptor, 1 << 16)
        self._data += data
        self._ended = not data


def _be_child(work: Callable[[Reports], None], reports: Reports) -> NoReturn:
    status = 0
    try:
        # A dead disk is what it waits for; errors of all other kinds are told.
        work(reports)
    except BaseException as error:  # noqa: BLE001 - whatever it is: the parent is to hear of it
        reports.say("ended", type(error).__name__, ascii(str(error))[:300].replace(" ", "_"))
        if os.environ.get("KRAFTLIB_POWER_DEBUG"):
            traceback.print_exc(file=sys.stderr)
        status = 1
    finally:
        os._exit(status)
