"""The registry: what was acknowledged outlives a kill -9 of the leader, for readers, watchers and checked services."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.examples.programs import EXAMPLES, PATIENCE_S, Programs, programs
from tests.interop.processes import free_ports, wait_for


class Http:
    """One of the processes, asked over HTTP."""

    def __init__(self, port: int) -> None:
        self.port = port

    @contextmanager
    def open(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Iterator[HTTPResponse]:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)) as connection:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            with connection.getresponse() as response:
                yield response

    def __call__(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes, str]:
        with self.open(method, path, body, headers) as response:
            return response.status, response.read(), response.headers.get("ETag", "")

    def json(self, path: str) -> Any:
        status, body, _ = self("GET", path)
        assert status == 200, body
        return json.loads(body)

    def answers(self) -> bool:
        try:
            return bool(self.json("/status")["leader_id"])
        except OSError:
            return False

    def events(self, path: str, **headers: str) -> Iterator[tuple[str, str, Any]]:
        """Yield kind, id and data of each event."""
        with self.open("GET", path, None, headers) as response:
            fields: dict[str, str] = {}
            end = time.monotonic() + PATIENCE_S
            for line in response:
                assert time.monotonic() < end, "there were signs of life, and no event"
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == ":":
                    fields = {}  # a sign of life, which ends with an empty line, too
                elif name:
                    fields[name] = value
                elif fields:
                    yield fields["event"], fields["id"], json.loads(fields["data"])
                    fields, end = {}, time.monotonic() + PATIENCE_S


def is_healthy(value: str | None) -> bool | None:
    return None if value is None else bool(json.loads(value)["healthy"])


def start(three: Programs) -> dict[int, Http]:
    sites = {number: Http(port) for number, port in zip((1, 2, 3), free_ports(3), strict=True)}
    for number, site in sites.items():
        program = (str(EXAMPLES / "service_registry.py"), str(three.config(number)), f"127.0.0.1:{site.port}")
        three.start(number, *program)
    for number, site in sites.items():
        wait_for(f"an answer of {number}: {three.running[number].tail()}", site.answers)
    return sites


def test_reads_writes_watches_and_checks_outlive_the_leader(tmp_path: Path) -> None:
    with programs(tmp_path) as three, socket.create_server(("127.0.0.1", 0)) as service, ExitStack() as open_streams:
        sites = start(three)
        leader = sites[1].json("/status")["leader_id"]
        one, two = (site for number, site in sites.items() if number != leader)

        status, _, blue = sites[leader]("PUT", "/config/ui/color", b"blue")
        assert status == 204
        assert one("GET", "/config/ui/color") == (200, b"blue", blue)
        watch = open_streams.enter_context(closing(one.events("/watch/config?prefix=ui/")))
        kind, begin, state = next(watch)
        assert (kind, state) == ("state", {"ui/color": "blue"})
        _, _, green = two("PUT", "/config/ui/color", b"green", If_Match=blue)
        assert two("PUT", "/config/ui/color", b"red", If_Match=blue)[0] == 412
        assert two("DELETE", "/config/ui/color", If_Match=blue)[0] == 412
        assert two("PUT", "/config/ui/color", b"red", If_None_Match="*")[0] == 412
        assert one("PUT", "/config/elsewhere", b"x", If_None_Match="*")[0] == 204

        checked = {"address": f"127.0.0.1:{service.getsockname()[1]}", "check": True}
        assert sites[leader]("PUT", "/services/web/1", json.dumps(checked).encode())[0] == 204
        assert sites[leader]("PUT", "/services/web/2", b'{"address": "10.0.0.7:80", "ttl_ms": 500}')[0] == 204
        assert one("PUT", "/services/web/3", b'{"address": "nowhere"}')[0] == 400
        assert one("PUT", "/config/" + "k" * 2_000, b"")[0] == 400
        assert one("PUT", "/config/large", bytes(1_000_000))[0] == 413
        instances = open_streams.enter_context(closing(two.events("/watch/services?prefix=web/")))
        _, _, state = next(instances)
        healthy = {key: is_healthy(state.get(key)) for key in ("web/1", "web/2")}

        three.kill(leader)
        assert one("PUT", "/config/ui/color", b"yellow", If_Match=green)[0] == 204
        assert two("DELETE", "/config/ui/color")[0] == 204
        seen = [data["value"] for _, _, data in (next(watch) for _ in range(3))]
        assert seen == ["green", "yellow", None]
        again = open_streams.enter_context(closing(two.events("/watch/config?prefix=ui/", Last_Event_ID=begin)))
        assert [data["value"] for _, _, data in (next(again) for _ in range(3))] == seen
        assert one("GET", "/config/ui/color")[0] == 404

        for service_is_up in (True, False):  # and whoever checks now finds out
            if not service_is_up:
                service.close()
            while healthy != {"web/1": service_is_up, "web/2": None}:
                _, _, data = next(instances)
                healthy[data["key"]] = is_healthy(data["value"])
        assert set(one.json("/services/")) == {"web/1"}
        assert b"EventSource" in one("GET", "/")[1]
        assert one("GET", "/elsewhere/x")[0] == 404
