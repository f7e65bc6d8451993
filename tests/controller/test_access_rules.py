"""Decisions by rules of access: the table, and an index against a search through all rules.

`tests/interop/test_authorizer.py` asks Kafka's StandardAuthorizer the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import attrs
import pytest

from kraftlib.controller.access_rules import (
    ALLOW,
    DENY,
    LITERAL,
    PREFIXED,
    AccessRules,
    Operation,
    ResourceType,
    Rule,
    host_text,
)

TOPIC, GROUP, CLUSTER, USER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.USER
PRINCIPALS = ("User:ann", "User:bob", "User:CN=ann,OU=ops", "User:ANONYMOUS")
HOSTS = ("10.0.0.1", "10.0.0.2")
NAMES = ("a", "ab", "abc", "abd", "b", "ac", "kafka-cluster", "*", "*a")


def rule(name: str = "orders", **changes: Any) -> Rule:
    plain = Rule(
        id=UUID(int=1), resource_type=TOPIC, resource_name=name, pattern_type=LITERAL, principal="User:ann", host="*",
        operation=Operation.READ, permission_type=ALLOW,
    )  # fmt: skip
    return attrs.evolve(plain, **changes)


def decided(*rules: Rule, name: str = "orders", operation: Operation = Operation.READ, **how: Any) -> bool:
    """Whether ann may read the topic `orders`, unless something else is said."""
    index = AccessRules()
    for number, one in enumerate(rules):
        index.change(None, attrs.evolve(one, id=UUID(int=number)))
    asked = {"principal": "User:ann", "host": "10.0.0.1", "if_none": False, **how}
    return index.allow(operation, asked.pop("kind", TOPIC), name, **asked)


DENIED = rule(permission_type=DENY)
TABLE = [
    ("a rule allows", decided(rule()), True),
    ("denial goes before, whatever the order", decided(rule(), DENIED), False),
    ("denial goes before, whatever the order", decided(DENIED, rule()), False),
    ("a denied prefix goes before", decided(rule(), attrs.evolve(DENIED, resource_name="o", pattern_type=4)), False),
    ("a denial of all names goes before", decided(rule(), rule("*", permission_type=DENY)), False),
    ("a denial of somebody else does not count", decided(rule(), attrs.evolve(DENIED, principal="User:bob")), True),
    ("a prefix", decided(rule("ord", pattern_type=PREFIXED)), True),
    ("the whole name as a prefix", decided(rule("orders", pattern_type=PREFIXED)), True),
    ("a prefix of another name", decided(rule("orb", pattern_type=PREFIXED)), False),
    ("a longer prefix", decided(rule("orders-", pattern_type=PREFIXED)), False),
    ("a literal name is no prefix", decided(rule("ord")), False),
    ("all names", decided(rule("*")), True),
    ("a star as a prefix is a letter", decided(rule("*", pattern_type=PREFIXED)), False),
    ("another type", decided(rule(resource_type=GROUP)), False),
    ("everybody", decided(rule(principal="User:*")), True),
    ("everybody, also nobody", decided(rule(principal="User:*"), principal="User:ANONYMOUS"), True),
    ("another principal", decided(rule(principal="User:Ann")), False),
    ("a host", decided(rule(host="10.0.0.1")), True),
    ("another host", decided(rule(host="10.0.0.2")), False),
    ("all operations", decided(rule(operation=Operation.ALL)), True),
    ("all operations denied", decided(rule(), rule(operation=Operation.ALL, permission_type=DENY)), False),
    ("no rule", decided(), False),
    ("no rule, and everyone is allowed", decided(if_none=True), True),
    ("a rule about somebody else concerns the resource", decided(rule(principal="User:bob"), if_none=True), False),
    ("a rule about another operation concerns it", decided(rule(operation=Operation.WRITE), if_none=True), False),
    ("a rule about another resource does not", decided(rule("others"), if_none=True), True),
]  # fmt: skip


@pytest.mark.parametrize(("words", "found", "expected"), TABLE)
def test_the_decision_table(words: str, found: bool, expected: bool) -> None:
    assert found is expected, words


@pytest.mark.parametrize(
    ("asked", "by"),
    [
        (Operation.DESCRIBE, {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
        (Operation.DESCRIBE_CONFIGS, {Operation.ALTER_CONFIGS}),
        *((one, set()) for one in Operation if one not in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)),
    ],
)
def test_an_allowed_operation_allows_weaker_ones_and_a_denied_one_denies_only_itself(
    asked: Operation, by: set[Operation]
) -> None:
    for one in Operation:
        expected = one in by | {asked, Operation.ALL}
        assert decided(rule(operation=one), operation=asked) is expected, one
        everything = rule(operation=Operation.ALL)
        kept = decided(everything, rule(operation=one, permission_type=DENY), operation=asked)
        assert kept is (one not in (asked, Operation.ALL)), one


def drawn_rule(chance: random.Random) -> Rule:
    return Rule(
        id=UUID(int=chance.getrandbits(128)),
        resource_type=chance.choice((TOPIC, TOPIC, GROUP, CLUSTER, USER)),
        resource_name=chance.choice(NAMES),
        pattern_type=chance.choice((LITERAL, PREFIXED)),
        principal=chance.choice((*PRINCIPALS, "User:*")),
        host=chance.choice((*HOSTS, "*", "*")),
        operation=chance.choice(tuple(Operation)),
        permission_type=chance.choice((ALLOW, ALLOW, DENY)),
    )


def drawn_question(chance: random.Random) -> tuple[Operation, ResourceType, str, dict[str, str]]:
    kind = chance.choice((TOPIC, TOPIC, GROUP, CLUSTER, USER))
    who = {"principal": chance.choice(PRINCIPALS), "host": chance.choice(HOSTS)}
    return chance.choice(tuple(Operation)[1:]), kind, chance.choice(NAMES[:7]), who


def concerning(rules: list[Rule], kind: int, name: str) -> Iterator[Rule]:
    for one in rules:
        literal = one.pattern_type == LITERAL and one.resource_name in (name, "*")
        prefixed = one.pattern_type == PREFIXED and name.startswith(one.resource_name)
        if one.resource_type == kind and (literal or prefixed):
            yield one


def test_the_index_finds_what_a_search_finds_while_rules_come_and_go() -> None:
    chance, index = random.Random(3), AccessRules()
    rules: list[Rule] = []
    for _ in range(3_000):
        if rules and chance.random() < 0.5:
            index.change(rules.pop(chance.randrange(len(rules))), None)
        else:
            rules.append(drawn_rule(chance))
            index.change(None, rules[-1])
        operation, kind, name, who = drawn_question(chance)
        only = AccessRules()
        for one in concerning(rules, kind, name):
            only.change(None, attrs.evolve(one, resource_name=name, pattern_type=LITERAL))
        for if_none in (False, True):
            found, expected = (each.allow(operation, kind, name, **who, if_none=if_none) for each in (index, only))
            assert found is expected


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1:5000", "127.0.0.1"),
        ("[::1]:5000", "0:0:0:0:0:0:0:1"),
        ("[fe80::a%eth0]:5000", "fe80:0:0:0:0:0:0:a"),
        ("[::ffff:10.0.0.1]:5000", "10.0.0.1"),
        (f"{bytes(15).hex()}01:0", "0:0:0:0:0:0:0:1"),
        ("unknown:0", "unknown"),
    ],
)
def test_hosts_are_written_as_kafka_writes_them(address: str, host: str) -> None:
    assert host_text(address) == host
