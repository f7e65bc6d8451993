"""A look at all that a replica needs, as it is configured: `kraftlib doctor`.

Nothing is changed and no replica is started; a replica that runs goes on. Each check is a function of the configuration
that yields findings: the subject, its state, and the remedy. A check does not depend on another.
"""

from __future__ import annotations

import contextlib
import enum
import importlib.util
import os
import shutil
import socket
import stat
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from kraftlib.config import RaftConfig
from kraftlib.errors import DirectoryInUseError, KraftError
from kraftlib.form import PURE, is_compiled
from kraftlib.records.checksum import is_in_hardware
from kraftlib.runtime.net.sockets import connected
from kraftlib.security.access import EVERY_ROLE, AccessConfig, is_loopback_host
from kraftlib.security.contexts import Holder, lists_cover_authorities
from kraftlib.security.file_contexts import FileContexts
from kraftlib.security.sasl_users import load_users
from kraftlib.storage.election.identity import find_identity
from kraftlib.storage.lock import DirectoryLock

SYNCS: Final = 50
SLOW_SHARE: Final = 20
"""A sync that takes more than this part of the election timeout makes elections likely where several come together."""

CONNECT_S: Final = 2.0


class Grade(enum.Enum):
    """The weight of a finding."""

    GOOD = "ok"
    WARNING = "warning"
    ERROR = "error"
    """The replica does not start so, or does not work."""


@attrs.frozen
class Finding:
    """One thing that was looked at."""

    subject: str
    grade: Grade
    text: str


def good(subject: str, text: str) -> Finding:
    """Return a finding that needs nothing to be done."""
    return Finding(subject, Grade.GOOD, text)


def warning(subject: str, text: str) -> Finding:
    """Return a finding that deserves a look."""
    return Finding(subject, Grade.WARNING, text)


def wrong(subject: str, text: str) -> Finding:
    """Return a finding with which a replica does not start, or does not work."""
    return Finding(subject, Grade.ERROR, text)


def examine(config: RaftConfig) -> Iterator[Finding]:
    """Yield all findings, in the order of `CHECKS`; a KraftError or OSError of a check is one, too."""
    for check in CHECKS:
        try:
            yield from check(config)
        except (KraftError, OSError) as error:
            yield wrong(check.__name__.strip("_").replace("_", " "), str(error))


def _libraries(config: RaftConfig) -> Iterator[Finding]:
    if not is_in_hardware:
        yield warning("libraries", "crc32c computes in software here: checksums take several times as long")
    if config.engine == "thread" and config.event_loop != "asyncio" and importlib.util.find_spec("uvloop") is None:
        yield warning("libraries", "uvloop is not installed, and asyncio's own loop is slower: pip install uvloop")
    else:
        yield good("libraries", "all that make it fast are there")
    yield good("form", f"compiled modules run ({PURE}=1 turns them off)" if is_compiled() else "pure Python runs")


def _directory(config: RaftConfig) -> Iterator[Finding]:
    if config.directory is None:
        yield warning("directory", "directory is not set: the log is in memory, and a restart forgets it")
        return
    meta, is_lost = find_identity(config.directory)
    if meta is None:
        yield wrong("directory", f"{config.directory} is not formatted: see kraftlib format --help")
        return
    meta.check(config.directory, node_id=config.node_id, cluster_id=config.cluster_id)
    if is_lost:
        yield warning("directory", f"meta.properties of {config.directory} is damaged: the next start writes it anew")
    try:
        DirectoryLock.acquire(config.directory).release()
        running = "no replica runs in it"
    except DirectoryInUseError:
        running = "a replica runs in it"
    yield good("directory", f"{config.directory} is that of node {meta.node_id} of {meta.cluster_id}; {running}")
    if stat.S_IMODE(config.directory.stat().st_mode) & 0o022:
        yield warning("directory", f"others may write to {config.directory}: chmod go-w {config.directory}")


def _disk(config: RaftConfig) -> Iterator[Finding]:
    if config.directory is None or not config.directory.is_dir():
        return
    free = shutil.disk_usage(config.directory).free
    wanted = config.retention_bytes + config.segment_bytes if config.retention_bytes >= 0 else config.segment_bytes
    if free < 2 * config.disk_reserve_bytes:
        yield wrong("disk", f"{free >> 20} MiB are free: with less than twice disk_reserve_bytes nothing is appended")
    elif free < wanted:
        yield warning("disk", f"{free >> 20} MiB are free, and log and snapshots may take {wanted >> 20} MiB")
    else:
        yield good("disk", f"{free >> 20} MiB are free")
    sync_ms = _sync_ms(config.directory)
    if sync_ms * SLOW_SHARE > config.election_timeout_ms:
        text = f"a sync takes {sync_ms:.1f} ms, and election_timeout_ms is {config.election_timeout_ms}: raise it, and"
        yield warning("disk", f"{text} fetch_timeout_ms, or take a faster disk")
    else:
        yield good("disk", f"a sync takes {sync_ms:.2f} ms (median of {SYNCS})")


def _sync_ms(directory: Path) -> float:
    times = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1_000


def _tls(config: RaftConfig) -> Iterator[Finding]:
    tls = config.tls
    if tls is None:
        return
    if tls.cert is None or tls.key is None:
        yield wrong("tls", "[tls] names no files: give tls.cert, tls.key and tls.ca, or leave [tls] out")
        return
    meta = find_identity(config.directory)[0] if config.directory is not None else None
    cluster_id = config.cluster_id or (None if meta is None else meta.cluster_id)
    is_voter = config.node_id in {voter.id for voter in config.voters}
    replicas = frozenset(config.access.replicas if config.access is not None else ())
    holder = Holder(cluster_id=cluster_id, node_id=config.node_id, is_voter=is_voter, replicas=replicas)
    contexts = FileContexts(tls, holder)
    ending = contexts.first_to_end
    yield good("tls", f"the files of [tls] are valid for {ending.days_left:.0f} days; first to end: {ending.what}")
    for ending in contexts.soon_to_end:
        yield warning("tls", str(ending))
    if tls.crl is not None and not lists_cover_authorities(tls):
        yield warning(
            "tls", f"{tls.crl} has no list of some authority in {tls.ca}: revoked authorities are not noticed"
        )
    if stat.S_IMODE(tls.key.stat().st_mode) & 0o077:
        yield warning("tls", f"others may read the key {tls.key}: chmod 600 {tls.key}")


def _sasl(config: RaftConfig) -> Iterator[Finding]:
    if config.sasl is not None:
        encrypted = config.tls is not None and config.tls.cert is not None
        users = load_users(config.sasl, config.node_id, encrypted=encrypted, insecure=config.insecure)
        yield good("sasl", f"this replica logs in as {users.username} with {config.sasl.mechanism}")


def _access(config: RaftConfig) -> Iterator[Finding]:
    host = config.listen.host
    if is_loopback_host(host):
        yield good("access", f"{host} is reached from this machine only")
        return
    if config.tls is None and config.sasl is None and not config.insecure:
        yield wrong("access", f"listen={config.listen} lets others in: give [tls] or [sasl], or insecure = true")
        return
    nobody = (config.access or AccessConfig()).roles_of_nobody(host, insecure=config.insecure)
    if nobody == EVERY_ROLE:
        yield warning(
            "access", f"every peer that connects to {config.listen} is an administrator, and may remove voters"
        )
    else:
        yield good("access", "a peer without a name may not change anything")


def _voters(config: RaftConfig) -> Iterator[Finding]:
    own = next((voter for voter in config.voters if voter.id == config.node_id), None)
    is_found = own is None or own.endpoint == config.unix_endpoint or config.listen.port in (0, own.endpoint.port)
    if own is not None and not is_found and config.advertised is None:
        text = f"voters names {own.endpoint} for this replica, and it listens on {config.listen}"
        yield warning("voters", f"{text}: the others will not find it")
    others = [(f"voter {voter.id}", voter.endpoint) for voter in config.voters if voter is not own]
    others += [("a bootstrap server", place) for place in config.bootstrap_servers]
    others += [("an upstream", place) for place in config.upstreams]
    for name, place in others:
        try:
            with contextlib.closing(connected(place, CONNECT_S)):
                yield good("voters", f"{name} is reached at {place}")
        except socket.gaierror as error:
            yield wrong("voters", f"{name}: {place.host} is no host ({error.strerror}): correct the name, or the DNS")
        except OSError as error:
            yield warning("voters", f"{name} is not reached at {place} ({error.strerror or error}): is it up?")


CHECKS: Final[Sequence[Callable[[RaftConfig], Iterator[Finding]]]] = (
    _libraries, _directory, _disk, _tls, _sasl, _access, _voters,
)  # fmt: skip
"""All checks, in the order in which they are told."""
