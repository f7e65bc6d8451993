"""A disk whose power can be cut: ext4 on an image behind a loop device, and the ioctl that shuts a file system down.

After the ioctl nothing reaches the image any more: what was not synced is gone, what was synced is there, and every
later call fails. That is what a power cut does, but for torn sectors, which the crash states have.
"""

from __future__ import annotations

import enum
import fcntl
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

EXT4_IOC_SHUTDOWN = 0x8004587D
SECONDS = 60
ATTEMPTS = 50
IMAGE_BYTES = 48 << 20


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


def why_impossible() -> str | None:
    """Return why no power can be cut on this machine, None if it can."""
    missing = [tool for tool in ("mkfs.ext4", "mount", "umount", "unshare") if shutil.which(tool) is None]
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "it needs root, for loop devices and mounts"
    if missing:
        return f"it needs {', '.join(missing)} (Debian: e2fsprogs, mount, util-linux)"
    if not Path("/dev/loop-control").exists() or subprocess.run(["losetup", "-f"], capture_output=True).returncode != 0:
        return "it needs loop devices, and there are none, or none is free"
    return None


def _run(*command: str, attempts: int = 1) -> None:
    """Run a command; one that may find its target still busy, because a process has only just ended, several times."""
    for attempt in range(attempts):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        if done.returncode == 0:
            return
        if attempt + 1 < attempts:
            time.sleep(0.1)
    raise OSError(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
