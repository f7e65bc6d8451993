"""Several machines on one log: routed by name, each with its part of the snapshot, and wrong input refused."""

from __future__ import annotations

import random as chance
from collections.abc import Callable
from typing import Any

import pytest

from kraftlib import blocking
from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError, RemoteProtocolError, UnsupportedError
from kraftlib.machines import Machines
from kraftlib.machines.messages import Announce, Command, Raise, Want, encode
from kraftlib.records.serde import JsonSerde
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
from kraftlib.testing import Subject, simulate
from kraftlib.testing.machine_contract import MACHINE_CHECKS
from tests.machines.shop import OldOrders, Orders, Stock, new_shop, shop
from tests.runtime.quorum import TIMING

ORDER = b'{"item":"tea","pieces":3}'


def some_record(random: chance.Random, number: int) -> bytes:
    """Commands of both machines in every version, what replicas announce, want and raise, and garbage."""
    machine, level = random.choice(("orders", "orders", "stock")), random.randrange(4)
    value = b'{"item":"%s","pieces":%d}' % (random.choice((b"tea", b"rum")), random.randrange(1, 9))
    match random.randrange(10):
        case 0:
            rows = tuple(Announce.Level(machine=name, level=2) for name in ("orders", "stock"))
            return encode(Announce(replica_id=random.randrange(4), supports=rows))
        case 1:
            return encode(Want(machine=random.choice((machine, "other")), level=level))
        case 2:
            top = {"orders": 2, "stock": 1}[machine]
            epoch = 1 + number // 50  # as the kit numbers them
            return encode(Raise(machine=machine, level=min(level, top), epoch=epoch, replicas=(1, 2)))
        case 3:
            return random.randbytes(random.randrange(1, 12)).replace(b"\xfd", b"")[:8] + b"?"
    return encode(Command(machine=machine, version=level, value=value))


@pytest.mark.parametrize("check", MACHINE_CHECKS, ids=lambda check: check.__name__)
def test_machines_keep_the_contract_of_one(check: Callable[[Subject], None]) -> None:
    check(Subject(machine=new_shop, value=some_record))


@pytest.mark.parametrize("seed", [1, 2])
def test_machines_agree_where_replicas_fail(seed: int) -> None:
    simulate(seed, subject=Subject(machine=new_shop, value=some_record), trouble_ms=2_000)


class Alone:
    """Machines without a quorum."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines

    def __call__(self, data: bytes, *, timestamp_ms: int = 0) -> Any:
        return self.machines.apply(CommittedRecord(self.machines.levels.applied + 1, 7, timestamp_ms, data))

    def raise_to(self, machine: str, level: int, *, epoch: int = 7) -> Any:
        rows = tuple(Announce.Level(machine=name, level=level) for name, level in self.machines.supported.items())
        assert self(encode(Announce(replica_id=1, supports=rows))) == b""
        return self(encode(Raise(machine=machine, level=level, epoch=epoch, replicas=(1,))))


def test_each_machine_gets_its_own_commands_and_a_part_of_the_snapshot() -> None:
    do = Alone(new_shop())
    assert do(do.machines.command("orders", {"item": "tea"})) == 1
    assert do.raise_to("stock", 1) == b""
    assert do(do.machines.command("stock", b"tea")) == 1
    values = list(do.machines.snapshot())

    other, stock = shop(Orders, stock=(again := Stock())), again
    other.restore(iter(values))
    assert stock.items == [b"tea"]
    assert (other.levels, list(other.snapshot())) == (do.machines.levels, values)


def test_a_machine_without_a_part_in_a_snapshot_is_as_it_began() -> None:
    def late() -> Machines:
        return Machines({"stock": Stock(), "orders": Orders()}, serde={"orders": JsonSerde()}, added=["orders"])

    do = Alone(late())
    do.raise_to("orders", 1)
    assert do(do.machines.command("orders", {"item": "tea"})) == 1
    do.machines.restore(iter(list(late().snapshot())))  # as a replica is healed whose state was wrong
    assert do.machines.levels.of("orders") == 0
    do.raise_to("orders", 1)
    assert do(do.machines.command("orders", {"item": "tea"})) == 1


@pytest.mark.parametrize("cut", range(3, 12))
def test_a_command_that_is_cut_changes_nothing(cut: int) -> None:
    do = Alone(new_shop())
    before = list(do.machines.snapshot())[1:]
    result = do(encode(Command(machine="stock", version=1, value=b""))[:cut])
    assert b"ends too early" in result
    assert b"is no name of a machine" in do(b"\xfd\1\0\1\xff\0\0\0\1")
    assert list(do.machines.snapshot())[1:] == before


def test_the_time_of_a_record_never_falls_for_a_machine() -> None:
    orders = Orders()
    do = Alone(Machines({"orders": orders}, serde=JsonSerde()))
    seen = []
    for timestamp_ms in (500, 400, 600):  # the clock of the second leader is behind
        do(do.machines.command("orders", {"item": "tea"}), timestamp_ms=timestamp_ms)
        seen.append(orders.last_ms)
    assert seen == [500, 500, 600]


def test_a_command_above_the_level_changes_nothing_wherever_it_was_made() -> None:
    do, record = Alone(new_shop()), encode(Command(machine="orders", version=2, value=ORDER))
    with pytest.raises(UnsupportedError, match=r"needs level 2 of machine 'orders', and the level is 1.*want_level"):
        do.machines.command("orders", {"item": "tea", "pieces": 3}, version=2)
    assert b"whose level is 1: not applied" in do(record)
    assert do.raise_to("orders", 2) == b""
    assert do(record) == 3
    assert do(do.machines.command("orders", {"item": "tea"})) == 4, "commands of version 1 go on"


def test_a_level_is_raised_by_the_leader_of_the_epoch_and_only_if_all_it_names_support_it() -> None:
    do = Alone(new_shop())
    assert b"the epoch is 7" in do.raise_to("orders", 2, epoch=6)
    assert b"replicas [2] have not announced level 2" in do(
        encode(Raise(machine="orders", level=2, epoch=7, replicas=(1, 2)))
    )
    assert b"no replicas are named" in do(encode(Raise(machine="orders", level=2, epoch=7)))
    assert do.machines.levels.of("orders") == 1
    assert do(do.machines.want_level("orders", 2)) == b""
    assert do.machines.levels.wanted == {"orders": 2}
    assert do.raise_to("orders", 2) == b""
    assert do.machines.levels.wanted == {}
    assert b"a level only rises" in do(do.machines.want_level("orders", 1))


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (Command(machine="toys", version=1, value=b""), "offset 0 is for machine 'toys', which this release does not"),
        (Raise(machine="toys", level=1, epoch=7, replicas=(1,)), "raises machine 'toys' to level 1.* supports 0"),
        (Raise(machine="orders", level=2, epoch=7, replicas=(1,)), "'orders' to level 2, and this release supports 1"),
    ],
)
def test_a_release_that_is_too_old_stops_and_its_state_is_as_before(record: Any, words: str) -> None:
    do = Alone(shop(OldOrders))
    rows = tuple(Announce.Level(machine=name, level=2) for name in ("orders", "toys"))
    before = Alone(shop(OldOrders))
    if isinstance(record, Raise):
        for each in (do, before):
            each(encode(Announce(replica_id=1, supports=rows)))
        words = words.replace("offset 0", "offset 1")
    with pytest.raises(UnsupportedError, match=f"{words}.*upgrade this replica and start it again"):
        do(encode(record))
    assert do.machines.levels.levels == before.machines.levels.levels


def snapshot_of(machines: Machines) -> list[bytes]:
    return list(machines.snapshot())


def test_a_snapshot_that_does_not_fit_this_release_touches_no_machine() -> None:
    do = Alone(new_shop())
    do.raise_to("orders", 2)
    at_level_2 = snapshot_of(do.machines)
    do.raise_to("stock", 1)
    with_stock = snapshot_of(do.machines)
    old = shop(OldOrders)
    for values, words in ((at_level_2, "'orders' at level 2.*supports 1"), (with_stock, "part of machine 'orders'")):
        with pytest.raises(UnsupportedError, match=f"{words}.*upgrade this replica"):
            old.restore(iter(values))
    with pytest.raises(UnsupportedError, match="a part of machine 'stock', which this release does not have"):
        shop(Orders).restore(iter(with_stock))
    forgotten = Machines({"orders": Orders(), "stock": Stock()}, serde={"orders": JsonSerde()})
    with pytest.raises(ConfigError, match=r"no part of machines \['stock'\].*added=\['stock'\]"):
        forgotten.restore(iter(at_level_2))
    with pytest.raises(RemoteProtocolError, match="belongs to no part"):
        new_shop().restore(iter([*at_level_2, b"\1\5stock?"]))
    with pytest.raises(RemoteProtocolError, match="begins with a header"):
        old.restore(iter([b"\1\5stock?"]))
    assert old.levels == shop(OldOrders).levels


class NoSnapshot(StateMachine):
    def apply(self, record: CommittedRecord) -> None:
        """Do nothing."""


class Zero(Orders):
    supports = 0


SAME = Stock()


@pytest.mark.parametrize(
    ("machines", "added", "words"),
    [
        ({}, (), "must have 1 to 256 state machines"),
        ([Stock()], (), "state machines by name"),
        ({"": Stock()}, (), "'' is no name of a machine"),
        ({"a" * 101: Stock()}, (), "1 to 100 bytes"),
        ({"stock": Stock}, (), r"machine 'stock': .*make one of it, Stock\("),
        ({"stock": NoSnapshot()}, (), r"machine 'stock': .*no snapshot\(\)"),
        ({"orders": Zero()}, (), "supports=0 must be a whole number, at least 1"),
        ({"a": SAME, "b": SAME}, (), "has two names"),
        ({"stock": Stock()}, ("toys",), r"added=\('toys',\) must name some of \['stock'\]"),
        ({"stock": Stock()}, ("stock",), "not all of them"),
    ],
)
def test_what_cannot_share_a_log_is_refused(machines: Any, added: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Machines(machines, added=added)


def test_a_command_of_no_machine_or_version_is_refused() -> None:
    machines = new_shop()
    with pytest.raises(ConfigError, match="there is no machine 'toys': there are 'orders', 'stock'"):
        machines.command("toys", b"")
    for version in (0, 3, True, "1"):
        with pytest.raises(ConfigError, match="is no version of machine 'orders': this release supports 1 to 2"):
            machines.command("orders", {}, version=version)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="this release supports 1 to 1"):
        machines.want_level("stock", 2)


def test_machines_answer_threads() -> None:
    config = RaftConfig.from_mapping({"node_id": 1, "voters": "1@127.0.0.1:19897", "listen": "127.0.0.1:0", **TIMING})
    machines = shop()
    stores: Any = {"log": MemoryReplicatedLog(), "elections": MemoryQuorumStateStore()}
    with blocking.RaftClient(config, state_machine=machines, **stores) as client:
        assert client.propose(machines.command("orders", {"item": "tea"}), timeout_ms=20_000) == 1
        assert client.propose(machines.want_level("orders", 2), timeout_ms=20_000) == b""
        pieces = None
        while pieces is None:
            try:
                pieces = client.propose(machines.command("orders", {"item": "tea", "pieces": 3}, version=2))
            except UnsupportedError:
                client.read_barrier()
        assert pieces == 4
