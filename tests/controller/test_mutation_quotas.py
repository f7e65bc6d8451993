from __future__ import annotations

from typing import Any

import pytest

from kraftlib.controller.context import Caller
from kraftlib.controller.mutation_quotas import WINDOW_S, Entity, MutationQuotas
from kraftlib.controller.results import RefusedError
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftlib.wire.messages.create_partitions import CreatePartitionsRequest
from kraftlib.wire.messages.create_topics import CreateTopicsRequest
from kraftlib.wire.messages.delete_topics import DeleteTopicsRequest
from tests.controller.world import World

ANN, BOB = ("user", "ann", False), ("user", "bob", False)
ANYBODY, ANY_CLIENT, TOOL = ("user", "", True), ("client-id", "", True), ("client-id", "tool", False)


def limit(world: World, rate: float | None, **entity: str | None) -> None:
    row = AlterClientQuotasRequest
    parts = tuple(row.EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items())
    change = row.OpData(key="controller_mutation_rate", value=rate or 0.0, remove=rate is None)
    assert world.ask(row(entries=(row.EntryData(entity=parts, ops=(change,)),))).entries[0].error_code == 0


def create(world: World, name: str, *, partitions: int = 1, version: int = 7, **who: str) -> tuple[int, int]:
    """Return the code, and the time to wait."""
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    caller = Caller(principal=f"User:{who.get('user', 'ann')}", client_id=who.get("client_id", "tool"))
    answer = world.ask(CreateTopicsRequest(topics=(topic,)), version=version, caller=caller)
    return answer.topics[0].error_code, answer.throttle_time_ms


def test_a_client_may_overdraw_its_quota_once_and_is_refused_until_there_are_tokens_again() -> None:
    world = World().with_brokers(1)
    limit(world, 2.0, user="ann")
    assert create(world, "a", partitions=2 * WINDOW_S + 4) == (0, 0)
    before = world.next_offset
    assert create(world, "b") == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 2_000)
    assert world.next_offset == before
    assert create(world, "b", user="bob") == (0, 0)
    world.now_ms += 1_000
    assert create(world, "c") == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 1_000)
    world.now_ms += 1_000
    assert create(world, "c") == (0, 0)
    assert create(world, "d") == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 500)
    limit(world, None, user="ann")
    assert create(world, "d") == (0, 0)


def test_a_client_of_before_kip_599_is_told_to_wait_and_not_refused() -> None:
    world = World().with_brokers(1)
    limit(world, 1.0, user="ann")
    assert create(world, "a", partitions=WINDOW_S + 2, version=5) == (0, 2_000)
    assert create(world, "b", version=5) == (0, 3_000)
    assert create(world, "c", version=6) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 3_000)


def test_new_partitions_and_deletions_count_and_what_is_refused_otherwise_does_not() -> None:
    world = World().with_brokers(1)
    ann = Caller(principal="User:ann")
    for name in "abc":
        assert create(world, name, partitions=WINDOW_S) == (0, 0)
    limit(world, 1.0, user="ann")
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=2 * WINDOW_S, assignments=None)

    def ask(request: Any, version: int) -> tuple[int, int]:
        answer = world.ask(request, version=version, caller=ann)
        rows = answer.results if isinstance(request, CreatePartitionsRequest) else answer.responses
        return rows[0].error_code, answer.throttle_time_ms

    assert create(world, "a", partitions=99) == (ErrorCode.TOPIC_ALREADY_EXISTS, 0)
    assert ask(CreatePartitionsRequest(topics=(more,)), 3) == (0, 0)
    assert ask(DeleteTopicsRequest(topic_names=("b",)), 5) == (0, 0)  # eleven in the red
    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED, 11_000
    assert ask(DeleteTopicsRequest(topic_names=("c",)), 5) == refused
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="c", count=12, assignments=None)
    assert ask(CreatePartitionsRequest(topics=(more,)), 3) == refused
    assert ask(CreatePartitionsRequest(topics=(more,)), 2) == (0, 12_000)
    assert ask(DeleteTopicsRequest(topic_names=("c",)), 4) == (0, 24_000)


def test_a_new_active_controller_begins_with_full_buckets() -> None:
    world = World().with_brokers(1)
    limit(world, 1.0, user=None)
    create(world, "a", partitions=50)
    assert create(world, "b")[0] == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.lose_the_epoch()
    world.activate()
    assert create(world, "b") == (0, 0)


@pytest.mark.parametrize(
    ("entity", "is_mine", "is_shared_by_clients", "is_shared_by_users"),
    [
        ((TOOL, ANN), True, False, False),
        ((ANY_CLIENT, ANN), True, False, False),
        ((ANN,), True, True, False),
        ((TOOL, ANYBODY), True, False, False),
        ((ANY_CLIENT, ANYBODY), True, False, False),
        ((ANYBODY,), True, True, False),
        ((TOOL,), True, False, True),
        ((ANY_CLIENT,), True, False, True),
        ((BOB,), False, False, False),
    ],
)
def test_quotas_are_looked_for_in_kafkas_order_and_shared_as_there(
    entity: Entity, is_mine: bool, is_shared_by_clients: bool, is_shared_by_users: bool
) -> None:
    order: list[Entity] = [
        (TOOL, ANN), (ANY_CLIENT, ANN), (ANN,), (TOOL, ANYBODY), (ANY_CLIENT, ANYBODY), (ANYBODY,), (TOOL,),
        (ANY_CLIENT,), (BOB,),
    ]  # fmt: skip
    rates = {one: 1.0 + number for number, one in enumerate(order)}
    weaker = {one: rates[one] for one in order[order.index(entity) :]}
    quotas = MutationQuotas()

    def account(user: str, client_id: str) -> Any:
        return quotas.account(weaker, user=user, client_id=client_id, is_strict=True, now_ms=0)

    mine = account("ann", "tool")
    assert mine.rate == (rates[entity] if is_mine else None)
    mine.take(1_000)

    def is_refused(user: str, client_id: str) -> bool:
        try:
            account(user, client_id).take(1)
        except RefusedError:
            return True
        return False

    assert is_refused("ann", "tool") == is_mine
    weaker = {entity: 1.0}
    if entity not in ((TOOL, ANN), (TOOL, ANYBODY), (TOOL,)):
        assert is_refused("ann", "other") == is_shared_by_clients
    if ANN not in entity:
        assert is_refused("carl", "tool") == is_shared_by_users


def test_buckets_that_are_full_again_are_forgotten() -> None:
    quotas, rates = MutationQuotas(), {(ANY_CLIENT,): 1.0}
    for number in range(1_000):
        quotas.account(rates, user="ann", client_id=f"tool {number}", is_strict=True, now_ms=number * 100).take(5)
    assert len(quotas) < 60


def test_an_overdrawn_bucket_keeps_no_other() -> None:
    quotas, rates = MutationQuotas(), {(ANY_CLIENT,): 1.0}
    quotas.account(rates, user="ann", client_id="greedy", is_strict=True, now_ms=0).take(10_000)
    for number in range(1_000):
        quotas.account(rates, user="ann", client_id=f"tool {number}", is_strict=True, now_ms=number * 100)
    assert len(quotas) < 60
    with pytest.raises(RefusedError):
        quotas.account(rates, user="ann", client_id="greedy", is_strict=True, now_ms=100_000).take(1)


@pytest.mark.parametrize("rate", [1e-3, 1e-306])
def test_the_time_to_wait_fits_into_an_answer(rate: float) -> None:
    world = World().with_brokers(1)
    limit(world, rate, user="ann")
    assert create(world, "a", partitions=3_000, version=5) == (0, 2**31 - 1)
    assert create(world, "b") == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 2**31 - 1)


def test_a_request_without_a_quota_fills_the_bucket_of_its_user_and_client() -> None:
    quotas, mine, others = MutationQuotas(), {(TOOL, ANN): 1.0}, {(TOOL, BOB): 1.0}
    for rates, is_refused in ((mine, False), (mine, True), (others, False), (mine, False)):
        account = quotas.account(rates, user="ann", client_id="tool", is_strict=True, now_ms=0)
        if is_refused:
            with pytest.raises(RefusedError):
                account.take(100)
        else:
            account.take(100)
