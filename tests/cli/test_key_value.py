"""The store: pure, and the same again after a snapshot."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.cli.key_value import KeyValueStore, offer_store
from kraftlib.cli.service import Service
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.types import LeaderAndEpoch

COMMANDS = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.text(max_size=3)))


def record(offset: int, key: str, value: str | None) -> CommittedRecord:
    return CommittedRecord(offset, 1, 0, {"key": key, "value": value})


@given(COMMANDS)
def test_it_agrees_with_a_dict(commands: list[tuple[str, str | None]]) -> None:
    store, twin = KeyValueStore(), dict[str, str]()
    for offset, (key, value) in enumerate(commands):
        assert store.apply(record(offset, key, value)) == {"offset": offset, "previous": twin.pop(key, None)}
        if value is not None:
            twin[key] = value

    assert store.items == twin
    assert store.end_offset == len(commands)


@given(COMMANDS)
def test_a_snapshot_restores_it_and_later_records_leave_the_snapshot_alone(
    commands: list[tuple[str, str | None]],
) -> None:
    store, copy = KeyValueStore(), KeyValueStore()
    for offset, (key, value) in enumerate(commands):
        store.apply(record(offset, key, value))
    snapshot, items = store.snapshot(), dict(store.items)
    store.apply(record(100, "a", "later"))
    copy.restore(json.loads(json.dumps(list(snapshot))))

    assert (copy.items, copy.end_offset) == (items, len(commands))


def test_news_of_the_leader_are_passed_on() -> None:
    heard: list[LeaderAndEpoch] = []
    KeyValueStore(leader_changed=heard.append).leader_changed(LeaderAndEpoch(2, 5))

    assert heard == [LeaderAndEpoch(2, 5)]


class Client:
    """Applies what is proposed at once."""

    def __init__(self, store: KeyValueStore) -> None:
        self.store = store
        self.offset = 0

    async def propose(self, value: Any) -> Any:
        self.offset += 1
        return self.store.apply(CommittedRecord(self.offset, 1, 0, value))


@pytest.fixture
def service() -> Service:
    store = KeyValueStore()
    service = Service(Client(store))  # type: ignore[arg-type]
    offer_store(service, store)
    return service


async def test_what_was_put_is_there(service: Service) -> None:
    assert await service.answer({"put": {"key": "a", "value": "1"}}) == {"put": {"offset": 1, "previous": None}}
    assert await service.answer({"get": "a"}) == {"get": {"value": "1", "offset": 2}}
    assert await service.answer({"all": True}) == {"all": {"items": {"a": "1"}, "offset": 2}}
    assert await service.answer({"put": {"key": "a", "value": None}}) == {"put": {"offset": 2, "previous": "1"}}
    assert await service.answer({"get": "a"}) == {"get": {"value": None, "offset": 3}}


@pytest.mark.parametrize(
    "request_",
    [
        {"put": "a"},
        {"put": {"key": 1, "value": "1"}},
        {"put": {"key": "a"}},
        {"put": {"key": "a", "value": 1}},
        {"get": 1},
    ],
)
async def test_what_is_no_item_or_key_is_refused(request_: dict[str, Any], service: Service) -> None:
    answer = await service.answer(request_)

    assert answer["error"] == "ConfigError"
    assert "expected" in answer["message"]
