"""A place outside of the voters' network, from which a stranger comes: a network namespace with a link to ours.

Its name bears the id of the process that has made it. One that was killed has left it behind, and the next run removes
it. Each run has two addresses of its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kraftlib.errors import KraftError

PREFIX: Final = "kraft-"
NETWORK: Final = "10.213.7."
LINKS: Final = 64
"""Links of two addresses that fit into the network."""


@contextlib.contextmanager
def outside() -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the address to listen on, and the words before a command that is to run somewhere else in the network.

    Where no namespace can be made it is loopback and no words, and a line on stderr says why.

    Raises: KraftError, if one was made and cannot be connected.
    """
    ip = shutil.which("ip")
    if ip is None or os.geteuid() != 0:
        reason = "there is no program `ip`" if ip is None else "that takes root"
        yield from _here(reason)
        return
    own = os.getpid()
    remove_left(ip)
    made = _run(ip, "netns", "add", f"{PREFIX}{own}")
    if made.returncode:
        yield from _here(_said(made))
        return
    try:
        near, far = _addresses(ip, own)
        inside = [ip, "netns", "exec", f"{PREFIX}{own}"]
        _connect(ip, own, near, far)
        yield near, inside
    finally:
        _remove(ip, own)


def _here(reason: str) -> Iterator[tuple[str, Sequence[str]]]:
    print(f"no network namespace can be made ({reason}): the stranger comes from loopback", file=sys.stderr)
    yield "127.0.0.1", ()


def remove_left(ip: str) -> None:
    """Remove the namespaces of processes that have gone, and one of an earlier process with our id."""
    for line in _run(ip, "netns", "list").stdout.splitlines():
        name, _, _ = line.partition(" ")
        number = name.removeprefix(PREFIX)
        if name != number and number.isdigit() and (int(number) == os.getpid() or not Path("/proc", number).exists()):
            _remove(ip, int(number))


def _remove(ip: str, process: int) -> None:
    _run(ip, "link", "del", _near_link(process))  # a process that is left inside would keep it
    _run(ip, "netns", "del", f"{PREFIX}{process}")


def _addresses(ip: str, process: int) -> tuple[str, str]:
    """Return two addresses that no other run has: of our end of the link, and of the other."""
    taken = _run(ip, "-4", "-o", "addr", "show").stdout
    for at in range(LINKS):
        first = 4 * ((process + at) % LINKS) + 1
        if f" {NETWORK}{first}/" not in taken:
            return f"{NETWORK}{first}", f"{NETWORK}{first + 1}"
    raise KraftError(f"all {LINKS} pairs of addresses of {NETWORK}0/24 are in use: see `ip addr`")


def _connect(ip: str, process: int, near: str, far: str) -> None:
    near_link, far_link, name = _near_link(process), f"kf{process}", f"{PREFIX}{process}"
    for words in (
        ["link", "add", near_link, "type", "veth", "peer", "name", far_link, "netns", name],
        ["addr", "add", f"{near}/30", "dev", near_link],
        ["link", "set", near_link, "up"],
        ["-n", name, "addr", "add", f"{far}/30", "dev", far_link],
        ["-n", name, "link", "set", far_link, "up"],
    ):
        done = _run(ip, *words)
        if done.returncode:
            raise KraftError(
                f"the network namespace of the stranger has no link: `ip {' '.join(words)}`: {_said(done)}"
            )


def _near_link(process: int) -> str:
    return f"kb{process}"


def _run(ip: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ip, *words], capture_output=True, text=True, check=False)


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(done.stderr.split()) or f"exit status {done.returncode}"
