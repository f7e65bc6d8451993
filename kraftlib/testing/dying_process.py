"""Work in a process that ends without a good-bye, and the files it had synced by then.

The process is a fork of this one. It ends by `os._exit` in the middle of its work: nothing is closed, flushed, waited
for or collected, so that only what the system was given is there afterwards. Linux only.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

from kraftlib.errors import InvariantError, ensure

PATIENCE_S: Final = 60.0

_TRACED: Final = "fsync,fdatasync,write,pwrite64,writev,pwritev,pwritev2,access,faccessat,faccessat2"
_CALL: Final = re.compile(r"\b(fsync|fdatasync|p?writev?2?|pwrite64)\(\d+<(/[^>]*)>")
_MARK: Final = "/kraftlib-mark/"


Die = Callable[[Any], NoReturn]
"""End the process with this result, at once: files that the caller holds are still open."""


def in_a_dying_process(work: Callable[[Die], Any], *, trace_to: Path | None = None) -> Any:
    """Call `work` in a fork, which `work` ends with its result; return that. It must be fit for JSON.

    With `trace_to` the system calls of the fork are written there by strace. Raises: InvariantError, if `work` raised,
    returned instead, or took longer than `PATIENCE_S`.
    """
    answers, told = os.pipe()
    begun, begin = os.pipe()
    pid = os.fork()
    if pid == 0:
        _work_and_die(work, told, begun)
    os.close(told)
    os.close(begun)
    tracer = None
    try:
        if trace_to is not None:
            tracer = _attach(pid, trace_to)
        os.write(begin, b"!")
        data = _read_all(answers, pid)
    finally:
        os.close(begin)
        os.close(answers)
        os.waitpid(pid, 0)
        if tracer is not None:
            tracer.communicate(timeout=PATIENCE_S)
    ensure(
        data != b"", f"the process ended within {work.__name__} without a word, or took more than {PATIENCE_S:.0f} s"
    )
    answer = json.loads(data)
    if "error" in answer:
        raise InvariantError(answer["error"])
    return answer["result"]


def mark(name: str) -> None:
    """Leave a mark in the trace of this process."""
    os.access(_MARK + name, os.F_OK)


def open_files() -> list[Path]:
    """Return the regular files that this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            path = Path(os.readlink(f"/proc/self/fd/{number}"))
            if path.is_file():
                found.append(path)
        except OSError:
            continue
    return found


def syncs_what_it_writes(work: Callable[[Die], Any]) -> bool:
    """Whether `work`, between its marks `begin` and `end`, syncs a file after its last write to that file.

    strace watches the calls of the system, so that it does not matter which language makes them.

    Raises: InvariantError, if there is no strace to watch them.
    """
    ensure(shutil.which("strace"), "only strace can see what a log syncs: install it (Debian: strace), and try again")
    with tempfile.TemporaryDirectory(prefix="kraftlib-trace-") as home:
        trace = Path(home) / "trace"
        in_a_dying_process(work, trace_to=trace)
        lines = trace.read_text(encoding="utf-8", errors="replace").splitlines()
    begun = next((n for n, line in enumerate(lines) if _MARK + "begin" in line), None)
    ended = next((n for n, line in enumerate(lines) if _MARK + "end" in line), None)
    if begun is None or ended is None:
        raise InvariantError(f"strace has seen no marks in {len(lines)} calls: may it watch processes here?")
    is_synced: dict[str, bool] = {}
    for line in lines[begun:ended]:
        if (call := _CALL.search(line)) is None:
            continue
        name, path = call.groups()
        if "sync" not in name:
            is_synced[path] = False
        elif path in is_synced:
            is_synced[path] = True
    return any(is_synced.values())


def _work_and_die(work: Callable[[Die], Any], told: int, begun: int) -> NoReturn:
    def die(result: Any) -> NoReturn:
        _tell({"result": result}, told)

    try:
        os.read(begun, 1)
        work(die)
        _tell({"error": f"{work.__name__} returned, and should have ended its process"}, told)
    except BaseException as error:  # noqa: BLE001  it is told, and the process ends
        _tell({"error": f"{type(error).__name__}: {error}"}, told)


def _tell(answer: dict[str, Any], told: int) -> NoReturn:
    try:
        os.write(told, json.dumps(answer).encode())
    finally:
        os._exit(0)


def _attach(pid: int, trace_to: Path) -> subprocess.Popen[bytes]:
    command = ["strace", "-f", "-y", "-qq", "-e", f"trace={_TRACED}", "-o", str(trace_to), "-p", str(pid)]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
    until = time.monotonic() + PATIENCE_S
    while "TracerPid:\t0" in Path(f"/proc/{pid}/status").read_text():
        if tracer.poll() is not None or time.monotonic() > until:
            tracer.kill()
            os.kill(pid, signal.SIGKILL)
            said = tracer.communicate()[1]
            raise InvariantError(f"strace cannot watch a process here: {said.decode(errors='replace').strip()}")
        time.sleep(0.01)
    return tracer


def _read_all(fd: int, pid: int) -> bytes:
    data, until = b"", time.monotonic() + PATIENCE_S
    ready = select.poll()
    ready.register(fd, select.POLLIN)
    while True:
        if not ready.poll(max(0.0, until - time.monotonic()) * 1_000):
            os.kill(pid, signal.SIGKILL)
            return b""
        piece = os.read(fd, 1 << 16)
        if not piece:
            return data
        data += piece
