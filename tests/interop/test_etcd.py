"""Imports of a real etcd: the keys of its snapshot are those that it says it has."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import sys
import urllib.request
from pathlib import Path
from typing import Any

from kraftlib.compat.etcd.snapshot import read_snapshot
from kraftlib.coordination.net.client import connect
from kraftlib.recipes.face import Recipes
from tests.coordination.net.ways import replicas
from tests.interop.contenders import programs
from tests.interop.lab import Lab
from tests.interop.ours import ROOT
from tests.interop.processes import Process, free_ports, wait_for


class Etcd:
    """One server, asked over its JSON gateway."""

    def __init__(self, lab: Lab) -> None:
        client, peer = free_ports(2)
        self._url = f"http://127.0.0.1:{client}"
        place = f"http://127.0.0.1:{peer}"
        command = [
            str(programs() / "etcd"),
            "--data-dir",
            str(lab.home / "etcd"),
            "--initial-cluster",
            f"default={place}",
        ]
        command += ["--listen-client-urls", self._url, "--advertise-client-urls", self._url]
        command += ["--listen-peer-urls", place, "--initial-advertise-peer-urls", place, "--log-level", "error"]
        self.process = Process(command, log=lab.home / "etcd.log")
        lab.keep(self.process)
        self.process.start()
        wait_for("etcd answers", self._answers)

    def _answers(self) -> bool:
        try:
            return bool(self.ask("kv/range", key=text(b"a")))
        except OSError:
            return False

    def ask(self, what: str, **body: Any) -> Any:
        return json.loads(self.raw(what, **body))

    def raw(self, what: str, **body: Any) -> bytes:
        request = urllib.request.Request(f"{self._url}/v3/{what}", data=json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: bytes = answer.read()
            return found

    def do(self, *operations: dict[str, Any]) -> int:
        """Do these in one transaction; return its revision."""
        return int(self.ask("kv/txn", success=operations)["header"]["revision"])

    def everything(self) -> list[dict[str, Any]]:
        """Return all keys as etcd has them."""
        found: list[dict[str, Any]] = self.ask("kv/range", key=text(b"\0"), range_end=text(b"\0"))["kvs"]
        return found

    def snapshot(self) -> bytes:
        """Return what `etcdctl snapshot save` would write."""
        pieces = map(json.loads, self.raw("maintenance/snapshot").splitlines())
        return b"".join(base64.b64decode(piece["result"].get("blob", "")) for piece in pieces)


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def put(key: bytes, value: bytes, **more: Any) -> dict[str, Any]:
    return {"request_put": {"key": text(key), "value": text(value), **more}}


def delete(key: bytes) -> dict[str, Any]:
    return {"request_delete_range": {"key": text(key)}}


def live(etcd: Etcd, dice: random.Random) -> None:
    """Write, delete, write again, compact: some keys are never touched again, some values fill many pages."""
    keys = [b"app/%d" % number for number in range(400)] + [b"other/%d" % number for number in range(40)]
    lease = etcd.ask("lease/grant", TTL=3_600)["ID"]
    etcd.do(put(b"app/leased", b"for an hour", lease=lease), put(b"app/large", dice.randbytes(60_000)))
    for turn in range(30):
        chosen = dice.sample(keys, 60)
        operations = [
            delete(key) if dice.random() < 0.3 else put(key, dice.randbytes(dice.randrange(40))) for key in chosen
        ]
        revision = etcd.do(*operations)
        if turn == 20:
            etcd.ask("kv/compaction", revision=str(revision), physical=True)
    etcd.do(put("app/größe".encode(), b""), put(b"app/0", b"the last"))


def test_a_snapshot_of_etcd_has_the_keys_that_etcd_has_and_is_imported(lab: Lab, tmp_path: Path) -> None:
    etcd = Etcd(lab)
    live(etcd, random.Random(5))
    path = tmp_path / "snapshot.db"
    path.write_bytes(etcd.snapshot())

    kvs = etcd.everything()
    has = {
        base64.b64decode(kv["key"]).decode(): base64.b64decode(kv.get("value", "")) for kv in kvs if "lease" not in kv
    }
    source = read_snapshot(path)
    assert source.entries == has
    assert (source.leased, source.revision) == (1, max(int(kv["mod_revision"]) for kv in kvs))

    etcd.process.kill()
    database = lab.home / "etcd" / "member" / "snap" / "db"
    assert read_snapshot(database).entries == has, "before a snapshot etcd writes all that it has"
    asyncio.run(imported(path, {key: value for key, value in has.items() if key.startswith("app/")}))


async def imported(path: Path, has: dict[str, bytes]) -> None:
    """Import into three replicas, twice."""
    async with replicas() as quorum:
        words = ["import", "etcd", str(path), "--bootstrap", quorum.servers, "--path", "app/", "--map", "settings"]
        for expected in (f"copied: {len(has)} keys that were missing", f"equal: {len(has)} keys"):
            process = await asyncio.create_subprocess_exec(
                *[sys.executable, "-m", "kraftlib.cli", *words],
                env={"PYTHONPATH": str(ROOT)},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            out, _ = await process.communicate()
            assert process.returncode == 0, out.decode()
            assert out.decode().startswith(expected)
            assert "1 keys with a lease are left out" in out.decode()
        async with connect(quorum.servers) as access, Recipes(access) as kraft:
            state = await kraft.map("settings").state()
            assert {key: entry.value for key, entry in state.entries.items()} == has
