"""A service registry and configuration store: HTTP in front of `kraftlib.open` or `kraftlib.connect`.

Three of these processes are a quorum, and each of them answers everything: reads are linearizable, a write that was
acknowledged survives `kill -9` of any one of them. It is an ASGI application of Starlette, so that it runs under any
ASGI server, and mounts into a FastAPI application (docs/howto/web-frameworks.md).

    PUT    /config/ui/color             the body is the value; the answer's ETag is its revision
    PUT    ... with If-Match: "7"       only if the revision is still 7 (compare and set); If-None-Match: *  creates
    GET    /config/ui/color             the value, with its ETag
    DELETE /config/ui/color             with If-Match, too
    PUT    /services/web/1              {"address": "10.0.0.7:80", "ttl_ms": 5000}: gone unless it is put again in time
    PUT    /services/web/1              {"address": "10.0.0.7:80", "check": true}: one of us connects, each second
    GET    /config/  and  /services/    all of them as JSON, also below a prefix: /services/web/
    GET    /watch/config?prefix=ui/     server-sent events: the state, then each change; Last-Event-ID goes on
    GET    /                            a page for the browser

412 says that the revision was another one, 400 that a rule was broken, 503 that nothing was changed and that the same
may be tried again, 504 that nobody knows: read, then decide.
The replica's directory is made by `kraftlib format -c replica-1.toml`; in place of the file a client of replicas
elsewhere names their addresses.

    python examples/service_registry.py replica-1.toml 127.0.0.1:8001
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import kraftlib
from kraftlib import ConfigError, KraftError, OutcomeUnknownError
from kraftlib.errors import RefusedError, UnavailableError
from kraftlib.recipes.kraft import Kraft
from kraftlib.recipes.map import ABSENT, At, Delete, Entry, MapState, Put, ReplicatedMap
from kraftlib.recipes.terms import Term

logger = logging.getLogger(__name__)

TTL_MS = 2_000
"""A process that checks services and is not heard of for so long is replaced."""
TIMEOUT_MS = 10_000
KEY_MAX_BYTES, VALUE_MAX_BYTES = 900, 500_000
CHECK_EVERY_S = 1.0
CHECK_TIMEOUT_S = 3.0
HEARTBEAT_S = 15.0
"""An event stream says something so often: that is how a browser that has gone is noticed."""

PAGE = """<!doctype html><meta charset="utf-8"><title>kraftlib registry</title>
<style>body{font:16px sans-serif;margin:2em}td,th{padding:.2em 1em;text-align:left;border-bottom:1px solid #ccc}</style>
<h1>Services</h1><table id="services"></table>
<h1>Configuration</h1><table id="config"></table>
<form><input name="key" placeholder="key" required> <input name="value" placeholder="value"> <button>Put</button></form>
<script>
for (const name of ["services", "config"]) {
  const rows = new Map(), table = document.getElementById(name), events = new EventSource("watch/" + name);
  const draw = () => table.replaceChildren(...[...rows].sort().map(([key, value]) => {
    const row = document.createElement("tr");
    row.insertCell().textContent = key;
    row.insertCell().textContent = value;
    return row;
  }));
  events.addEventListener("state", event => {
    rows.clear();
    for (const [key, value] of Object.entries(JSON.parse(event.data))) rows.set(key, value);
    draw();
  });
  events.addEventListener("change", event => {
    const {key, value} = JSON.parse(event.data);
    value === null ? rows.delete(key) : rows.set(key, value);
    draw();
  });
}
document.forms[0].onsubmit = event => {
  event.preventDefault();
  const form = event.target;
  fetch("config/" + encodeURI(form.key.value), {method: "PUT", body: form.value.value});
};
</script>"""


class Registry:
    """The routes, over a `Kraft` that whoever serves them has entered."""

    def __init__(self, kraft: Kraft) -> None:
        self._kraft = kraft
        self._maps = {name: kraft.map(name) for name in ("config", "services")}
        self.routes = [
            Route("/", self.page),
            Route("/status", self.status),
            Route("/watch/{map}", self.watch),
            Route("/{map}/{key:path}", self.read, methods=["GET"]),
            Route("/{map}/{key:path}", self.write, methods=["PUT"]),
            Route("/{map}/{key:path}", self.delete, methods=["DELETE"]),
        ]

    def _map(self, request: Request) -> ReplicatedMap:
        try:
            return self._maps[request.path_params["map"]]
        except KeyError:
            raise HTTPException(404) from None

    async def page(self, request: Request) -> Response:
        """Show all, and follow it."""
        return HTMLResponse(PAGE)

    async def status(self, request: Request) -> Response:
        """Say which replica this is, and who leads."""
        status = self._kraft.replica.status()
        return JSONResponse({"node_id": self._kraft.replica.node_id, "leader_id": status.leader_id})

    async def read(self, request: Request) -> Response:
        """Return a value; or, where the path ends with a slash, all that is below it."""
        key = request.path_params["key"]
        if not key or key.endswith("/"):
            state = await self._map(request).state(key)
            return JSONResponse({entry.key: text(entry.value) for entry in state.entries.values()})
        entry = await self._map(request).get(key)
        if entry is None:
            raise HTTPException(404)
        return Response(entry.value, headers={"ETag": f'"{entry.revision}"'})

    async def write(self, request: Request) -> Response:
        """Write a key of the configuration, or register an instance of a service."""
        key, value, ttl_ms = request.path_params["key"], await body(request), 0
        if len(key.encode()) > KEY_MAX_BYTES:
            raise HTTPException(400, f"a key has at most {KEY_MAX_BYTES} bytes")
        if request.path_params["map"] == "services":
            value, ttl_ms = instance(value)
        done = await self._map(request).transaction([Put(key, value, ttl_ms)], conditions=conditions(request, key))
        return Response(status_code=204, headers={"ETag": f'"{done.offset}"'}) if done.succeeded else refused()

    async def delete(self, request: Request) -> Response:
        """Delete a key."""
        key = request.path_params["key"]
        done = await self._map(request).transaction([Delete(key)], conditions=conditions(request, key))
        return Response(status_code=204) if done.succeeded else refused()

    async def watch(self, request: Request) -> Response:
        """Send the state and each change, for as long as the other side listens."""
        since = request.headers.get("last-event-id")
        events = self._events(self._map(request), request.query_params.get("prefix", ""), since)
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def _events(self, map: ReplicatedMap, prefix: str, since: str | None) -> AsyncIterator[str]:
        offset = int(since) if since is not None and since.isdecimal() else None
        if offset is None:
            state = await map.state(prefix)
            offset = state.offset
            yield state_event(state)
        async with aclosing(map.watch(prefix=prefix, since=offset)) as watch:
            while True:
                coming = asyncio.ensure_future(anext(watch))
                try:
                    while not (await asyncio.wait([coming], timeout=HEARTBEAT_S))[0]:
                        yield ":\n\n"
                    change = coming.result()
                finally:
                    coming.cancel()
                if isinstance(change, MapState):
                    yield state_event(change)
                else:
                    value = None if change.value is None else text(change.value)
                    yield event("change", change.offset, {"key": change.key, "value": value})


async def body(request: Request) -> bytes:
    """Return the body, which is read no further than a value may be long."""
    value = b""
    async for piece in request.stream():
        value += piece
        if len(value) > VALUE_MAX_BYTES:
            raise HTTPException(413, f"a value has at most {VALUE_MAX_BYTES} bytes")
    return value


def conditions(request: Request, key: str) -> list[At]:
    """Return what the request's headers ask to be so."""
    if request.headers.get("if-none-match") == "*":
        return [At(key, ABSENT)]
    if (tag := request.headers.get("if-match")) is None:
        return []
    revision = tag.strip('"')
    if not revision.isdecimal():
        raise HTTPException(400, f"If-Match: {tag} is no ETag of ours")
    return [At(key, int(revision))]


def refused() -> Response:
    """Return the answer to a write whose condition did not hold."""
    return Response(status_code=412)


def instance(data: bytes) -> tuple[bytes, int]:
    """Return value and time to live of an instance; one that is checked is healthy once it was reached."""
    try:
        given = json.loads(data)
        host, _, port = given["address"].rpartition(":")
        ttl_ms, check = given.get("ttl_ms", 0), given.get("check", False)
        if not (host and 0 < int(port) < 65_536 and isinstance(ttl_ms, int) and (ttl_ms > 0) is not check):
            raise ValueError
    except (ValueError, LookupError, TypeError, AttributeError):
        example = '{"address": "10.0.0.7:80"} and either "ttl_ms": 5000 or "check": true'
        raise HTTPException(400, f"{data[:100]!r} is no instance: expected {example}") from None
    return json.dumps({"address": given["address"], "check": check, "healthy": not check}).encode(), ttl_ms


def text(value: bytes) -> str:
    """Return a value for JSON."""
    return value.decode("utf-8", "replace")


def state_event(state: MapState) -> str:
    """Return a state as an event."""
    return event("state", state.offset, {entry.key: text(entry.value) for entry in state.entries.values()})


def event(kind: str, offset: int, data: dict[str, Any]) -> str:
    """Return a server-sent event; its id is the offset from which the browser goes on after a lost connection."""
    return f"event: {kind}\nid: {offset}\ndata: {json.dumps(data)}\n\n"


# --- checks ----------------------------------------------------------------------------------------------------------


async def check_for_ever(kraft: Kraft) -> None:
    """Check the services whenever this process is elected to."""
    while True:
        with suppress(KraftError):  # not elected any more, or no quorum: try again
            async with kraft.election("checker") as term:
                logger.info("this process checks the services")
                while True:
                    instances = (await kraft.map("services").state()).entries.values()
                    await asyncio.gather(*(check(kraft.map("services"), entry, term) for entry in instances))
                    await asyncio.sleep(CHECK_EVERY_S)
        await asyncio.sleep(CHECK_EVERY_S)


async def check(services: ReplicatedMap, entry: Entry, term: Term) -> None:
    """Try to connect to an instance, and write it down where that has changed, unless the entry has changed, too."""
    found = json.loads(entry.value)
    if not found["check"]:
        return
    host, _, port = found["address"].rpartition(":")
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        healthy = True
    except OSError:
        healthy = False
    if healthy is not found["healthy"]:
        value = json.dumps({**found, "healthy": healthy}).encode()
        await services.compare_and_set(entry.key, expect=entry.revision, value=value, fence=term)


# --- the application -------------------------------------------------------------------------------------------------


def application(kraft: Kraft) -> Starlette:
    """Return the whole of it: the routes, and what runs beside them."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with kraft:
            checking = asyncio.create_task(check_for_ever(kraft))
            try:
                yield
            finally:
                checking.cancel()
                await asyncio.wait([checking])

    return Starlette(routes=Registry(kraft).routes, lifespan=lifespan, exception_handlers={KraftError: failed})


async def failed(request: Request, error: Exception) -> Response:
    """Answer a request that kraftlib could not carry out."""
    if isinstance(error, ConfigError) or (isinstance(error, RefusedError) and not isinstance(error, UnavailableError)):
        return JSONResponse({"error": str(error)}, status_code=400)
    status = 504 if isinstance(error, OutcomeUnknownError) else 503
    return JSONResponse({"error": str(error)}, status_code=status, headers={"Retry-After": "1"})


def main(arguments: Sequence[str]) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    where, listen = arguments
    options: Any = {"owner": listen, "ttl_ms": TTL_MS, "timeout_ms": TIMEOUT_MS}
    kraft = kraftlib.open(where, **options) if Path(where).exists() else kraftlib.connect(where, **options)
    host, _, port = listen.rpartition(":")
    uvicorn.run(application(kraft), host=host, port=int(port), timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main(sys.argv[1:]) if len(sys.argv) == 3 else sys.exit(__doc__)
