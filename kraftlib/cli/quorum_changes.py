"""`kraftlib quorum add-voter | remove-voter | upgrade`: changes of the voter set, of a quorum of ours or of Kafka's.

The leader is found from any replica and asked until it has done it (see `kraftlib.runtime.client.voter_changes`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from kraftlib.cli.login import add_login_arguments, login_of
from kraftlib.cli.usage import servers_of
from kraftlib.consensus.events import Failure
from kraftlib.errors import ConfigError, RemoteProtocolError
from kraftlib.find_leader import find_leader
from kraftlib.runtime.client.voter_changes import VoterChangeRequest, addition, change_voters, removal, upgrade
from kraftlib.runtime.own_requests import NoAnswerError
from kraftlib.security.own_thread import in_own_thread
from kraftlib.types import Endpoint, ReplicaKey, parse_endpoint, parse_uuid
from kraftlib.wire.apis import APIS, ErrorCode
from kraftlib.wire_client import Login, UnreachableError, WireClient

CHANGES: Final = ("add-voter", "remove-voter", "upgrade")


def add_arguments(questions: Any) -> None:
    """Declare the changes beside the other questions of `kraftlib quorum`."""
    add = questions.add_parser("add-voter", help="make an observer that has caught up a voter (kraft.version 1)")
    add.add_argument("--endpoint", required=True, metavar="HOST:PORT", help="the address of the new voter")
    add.add_argument("--listener", default="CONTROLLER", help="name of its listener (CONTROLLER)")
    remove = questions.add_parser("remove-voter", help="make a voter an observer (kraft.version 1)")
    for parser in (add, remove):
        parser.add_argument("--id", type=int, required=True, help="number of the replica")
        parser.add_argument("--directory-id", required=True, help="id of its directory, as `quorum status` shows it")
    raising = questions.add_parser("upgrade", help="make a static quorum a dynamic one; there is no way back")
    raising.add_argument("--kraft-version", type=int, default=1, help="the new version (1)")
    for parser in (add, remove, raising):
        parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT,…", help="replicas that know the leader")
        parser.add_argument("--output", choices=("text", "json"), default="text")
        parser.add_argument("--timeout-ms", type=int, default=30_000, help="time limit for the commit (30000)")
        add_login_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Have the change done, and say so."""
    servers = servers_of(options)
    if options.question == "upgrade":
        change = upgrade(options.kraft_version, timeout_ms=options.timeout_ms)
    else:
        key = ReplicaKey(options.id, parse_uuid(options.directory_id))
        if options.question == "add-voter":
            places = {options.listener: parse_endpoint(options.endpoint)}
            change = addition(key, places, cluster_id=None, timeout_ms=options.timeout_ms)  # the leader knows its own
        else:
            change = removal(key, cluster_id=None)
    asyncio.run(_see_through(change, servers, options.timeout_ms, login_of(options)))
    if options.output == "json":
        print(json.dumps({"change": options.question, "committed": True}))
    else:
        print(f"{change.what}: committed")
    return 0


async def _see_through(
    change: VoterChangeRequest, servers: Sequence[Endpoint], timeout_ms: int, login: Login | None
) -> None:
    def ask(message: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(in_own_thread(_ask_leader, servers, message, timeout_ms / 1_000, login))

    try:
        await change_voters(change, ask=ask, timeout_ms=timeout_ms)
    except TimeoutError as error:
        raise UnreachableError(str(error)) from None


def _ask_leader(servers: Sequence[Endpoint], message: Any, timeout_s: float, login: Login | None) -> Any:
    answer = APIS[message.api_key].response
    try:
        leader = find_leader(servers, timeout_s=timeout_s, login=login)
    except UnreachableError as error:  # no leader was asked yet
        return answer(error_code=ErrorCode.BROKER_NOT_AVAILABLE, error_message=str(error))  # type: ignore[call-arg]
    try:
        with WireClient(leader, timeout_s=timeout_s, login=login) as client:
            return client.ask(message, answer)
    except UnreachableError as error:
        print(f"kraftlib: {error}", file=sys.stderr)
        raise NoAnswerError(Failure.DISCONNECTED) from error
    except RemoteProtocolError as error:
        raise ConfigError(f"the leader at {leader} cannot be asked for that: {error}") from error
