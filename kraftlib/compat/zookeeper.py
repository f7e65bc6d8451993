"""A ZooKeeper that is read: a running one, or the files of one. kazoo is looked for when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kraftlib.errors import ConfigError, TimedOutError

if TYPE_CHECKING:
    from kraftlib.compat.kazoo.source import Source


@contextmanager
def reader(
    hosts: str, top: str, *, files: Sequence[str] = (), auth_file: str | None = None, timeout_ms: int
) -> Iterator[Callable[[], Source]]:
    """Yield a function that reads the node `top` and all below it: from these servers, or from directories of files.

    `auth_file` has USER:PASSWORD of the digest scheme. Raises: ConfigError, also if kazoo is not there; TimedOutError.
    """
    try:
        from kraftlib.compat.kazoo.source import read_source
        from kraftlib.compat.kazoo.zookeeper_files import read_files
    except ModuleNotFoundError as error:
        if error.name != "kazoo":
            raise
        raise ConfigError(str(error)) from error
    if files:
        yield partial(read_files, list(map(Path, files)), top)
        return
    client = _connected(hosts, auth_file, timeout_ms)
    try:
        yield partial(read_source, client, top)
    finally:
        client.stop()
        client.close()


def _connected(hosts: str, auth_file: str | None, timeout_ms: int) -> Any:
    """Return a client of ZooKeeper that is connected. Raises: ConfigError; TimedOutError."""
    from kazoo.client import KazooClient
    from kazoo.handlers.threading import KazooTimeoutError

    auth = None
    if auth_file is not None:
        try:
            auth = [("digest", Path(auth_file).read_text(encoding="utf-8").strip())]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--auth-file {auth_file}: {error}") from error
    try:
        client = KazooClient(hosts=hosts, auth_data=auth)
    except ValueError as error:
        raise ConfigError(f"{hosts!r} must name the servers of ZooKeeper, HOST:PORT,…: {error}") from error
    try:
        client.start(timeout=timeout_ms / 1_000)
    except KazooTimeoutError as error:
        client.close()
        raise TimedOutError(f"no server of ZooKeeper at {hosts} within {timeout_ms} ms") from error
    return client
