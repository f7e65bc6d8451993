"""A disk whose power can be cut: ext4 on an image behind a loop device, and the ioctl that shuts a file system down.

After the ioctl nothing reaches the image any more: what was not synced is gone, what was synced is there, and every
later call fails. That is what a power cut does, but for torn sectors, which the crash states have.

It takes root, or sudo that asks for no password, and happens in a mount namespace of its own. `why_impossible` tries it
all once, on a small disk: what is a container of root's may look as if it could, and cannot.
"""

from __future__ import annotations

import enum
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

EXT4_IOC_SHUTDOWN = 0x8004587D
SECONDS = 60
ATTEMPTS = 50
IMAGE_BYTES = 48 << 20
PROBE_BYTES = 4 << 20
NAMESPACE = "KRAFTLIB_POWER_NAMESPACE"
"""Set where our mounts are nobody else's."""
PASSED_ON = ("CI", "PYTHONPATH", "PATH", "TMPDIR")
"""What sudo would not leave of the environment."""


class Cut(enum.IntEnum):
    """What becomes of the journal when the power goes."""

    JOURNAL_KEPT = 1
    """What the file system was about to commit still is: sizes and names may be there, with data or without."""
    JOURNAL_LOST = 2
    """Not even that."""


class PowerDisk:
    """One such disk, mounted at `path` or not."""

    def __init__(self, top: Path, name: str, *, size: int = IMAGE_BYTES) -> None:
        self.path = top / name
        self._image = top / f"{name}.img"
        self._root: int | None = None
        self.path.mkdir()
        with open(self._image, "wb") as image:
            image.truncate(size)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(self._image))

    def mount(self) -> None:
        """Give it power. The file system recovers as after any cut."""
        _run("mount", "-o", "loop", str(self._image), str(self.path))
        self._root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)

    def cut(self, how: Cut) -> None:
        """Take the power away, at once."""
        if self._root is not None:
            fcntl.ioctl(self._root, EXT4_IOC_SHUTDOWN, struct.pack("I", how))

    def unmount(self) -> None:
        """Let go of the device; nobody may have a file open on it. Calling it twice is allowed."""
        if self._root is not None:
            os.close(self._root)
            self._root = None
            _run("umount", str(self.path), attempts=ATTEMPTS)

    def free(self) -> None:
        """Unmount, whoever still uses it, and remove the image."""
        if self._root is not None:
            os.close(self._root)
            self._root = None
        if os.path.ismount(self.path):
            subprocess.run(["umount", "-l", str(self.path)], check=False, timeout=SECONDS)
        self._image.unlink(missing_ok=True)


class MemoryDisk:
    """A file system of so many bytes in memory, mounted at `path` or not."""

    def __init__(self, top: Path, name: str, *, size: int) -> None:
        self.path = top / name
        self._size = size
        self.path.mkdir()

    def mount(self) -> None:
        """Make it; it is empty."""
        _run("mount", "-t", "tmpfs", "-o", f"size={self._size}", "tmpfs", str(self.path))

    def free(self) -> None:
        """Unmount, whoever still uses it."""
        if os.path.ismount(self.path):
            subprocess.run(["umount", "-l", str(self.path)], check=False, timeout=SECONDS)


@cache
def why_impossible() -> str | None:
    """Return why no power can be cut on this machine, None if it can."""
    if NAMESPACE in os.environ:
        return None  # whoever made the namespace has asked
    missing = [tool for tool in ("mkfs.ext4", "mount", "umount", "unshare") if shutil.which(tool, path=_path()) is None]
    if missing:
        return f"it needs {', '.join(missing)} (Debian: e2fsprogs, mount, util-linux)"
    if not _is_root() and not _has_sudo():
        return "it needs root, for loop devices and mounts, or sudo without a password"
    command = in_a_namespace("tests.storage.power.disk")
    tried = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    if tried.returncode:
        return f"it needs loop devices and mounts: {(tried.stderr.strip().splitlines() or ['no'])[-1]}"
    return None


def in_a_namespace(module: str, arguments: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a module as root, where its mounts are nobody else's and go when it goes."""
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ} | {"PATH": _path(), NAMESPACE: "1"}
    if not _is_root():
        kept["PYTHONDONTWRITEBYTECODE"] = "1"  # what root writes here its owner could not remove
    root = [] if _is_root() else ["sudo", "-n"]
    environment = ["env", *(f"{name}={value}" for name, value in kept.items())]
    namespace = ["unshare", "--mount", "--propagation", "private"]
    return [*root, *environment, *namespace, sys.executable, "-m", module, *arguments]


def _path() -> str:
    """Where programs are; /sbin is not on everybody's path."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _has_sudo() -> bool:
    return (
        shutil.which("sudo") is not None and not subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode
    )


def _try() -> None:
    """Cut the power of a small disk. Raises OSError, where that cannot be done."""
    with tempfile.TemporaryDirectory() as top:
        disk = PowerDisk(Path(top), "probe", size=PROBE_BYTES)
        try:
            disk.mount()
            disk.cut(Cut.JOURNAL_LOST)
            disk.unmount()
        finally:
            disk.free()


def _run(*command: str, attempts: int = 1) -> None:
    """Run a command; one that may find its target still busy, because a process has only just ended, several times."""
    for attempt in range(attempts):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        if done.returncode == 0:
            return
        if attempt + 1 < attempts:
            time.sleep(0.1)
    raise OSError(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")


if __name__ == "__main__":
    _try()
