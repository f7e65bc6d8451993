"""Kafka's command line tools in one JVM that stays (`peer/Tools.java`): tests that run many of them start it once."""

from __future__ import annotations

import base64
import select
import subprocess
from typing import Final

from tests.interop.kafka import Output, Release
from tests.interop.peer import compiled
from tests.interop.processes import PATIENCE_S

HEAP_MB: Final = 160


class Toolbox:
    """The tools of one release, one at a time. The JVM ends with its standard input, and so with this process."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, main: str, *arguments: object, text: str = "", timeout_s: float = PATIENCE_S) -> Output:
        """Run a tool on `text` to its end. Raises: TimeoutError, and the next tool has a new JVM."""
        words = [self._release.class_of(main), text, *map(str, arguments)]
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b" ".join(b"." + base64.b64encode(word.encode()) for word in words) + b"\n")
        process.stdin.flush()
        readable, _, _ = select.select([process.stdout], [], [], timeout_s)
        if not readable:
            self.close()
            raise TimeoutError(f"{words} has not ended after {timeout_s:.0f} s")
        answer = process.stdout.readline().split()
        assert len(answer) == 3, f"the JVM of the tools ended with {process.poll()} at {words}"
        out, err = (base64.b64decode(word[1:]).decode("utf-8", "replace") for word in answer[1:])
        return Output(int(answer[0]), out, err)

    def close(self) -> None:
        """End the JVM."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            command = self._release.java("Tools", heap_mb=HEAP_MB, classes=compiled(self._release))
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process
