"""The decision of Kafka's StandardAuthorizer: whether rules of access let a principal do something (KIP-11, KIP-290).

    a rule denies it                        no, even if others allow it
    a rule allows it                        yes
    rules concern the resource, none fits   no
    no rule concerns the resource           as `allow.everyone.if.no.acl.found` says

A rule concerns a resource by its literal name, by a prefix of it, or by the literal name `*`. It fits a principal or
`User:*`, a host or `*`, and an operation or all of them. An allowed READ, WRITE, DELETE or ALTER allows DESCRIBE as
well, and an allowed ALTER_CONFIGS allows DESCRIBE_CONFIGS; a denied operation implies nothing.
"""

from __future__ import annotations

import enum
import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

from kraftlib.metadata.security_records import AccessControlEntryRecord

Rule = AccessControlEntryRecord


class ResourceType(enum.IntEnum):
    """A type of resources, by its number in rules."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Operation(enum.IntEnum):
    """A kind of access, by its number in rules."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


CLUSTER_NAME: Final = "kafka-cluster"
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ANYTHING: Final = "*"
ANYBODY: Final = "User:*"

ALLOWED_BY: Final[Mapping[int, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
"""The operations that allow another one, too."""


def host_text(address: str) -> str:
    """Return the host of `HOST:PORT` as Kafka writes it in rules: an IPv6 address has all of its eight numbers."""
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    is_packed = re.fullmatch("[0-9a-f]{32}", host) is not None
    try:
        parsed = ipaddress.ip_address(bytes.fromhex(host) if is_packed else host)
    except ValueError:
        return host
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ":".join(f"{int(part, 16):x}" for part in parsed.exploded.split(":")))


class AccessRules:
    """All rules, by the resources that they concern: a decision looks at no others."""

    def __init__(self) -> None:
        self._rules: dict[tuple[int, int, str], dict[UUID, Rule]] = {}
        self._prefix_lengths: dict[int, Counter[int]] = {}
        """The lengths of the prefixed names of a type of resources, and how many names have them."""

    def change(self, old: Rule | None, new: Rule | None) -> None:
        """Take a rule in place of another one, which has the same id."""
        if old is not None:
            self._remove(old)
        if new is not None:
            place = (new.resource_type, new.pattern_type, new.resource_name)
            if place not in self._rules and new.pattern_type == PREFIXED:
                self._prefix_lengths.setdefault(new.resource_type, Counter())[len(new.resource_name)] += 1
            self._rules.setdefault(place, {})[new.id] = new

    def _remove(self, rule: Rule) -> None:
        place = (rule.resource_type, rule.pattern_type, rule.resource_name)
        del self._rules[place][rule.id]
        if not self._rules[place]:
            del self._rules[place]
            if rule.pattern_type == PREFIXED:
                lengths = self._prefix_lengths[rule.resource_type]
                lengths[len(rule.resource_name)] -= 1
                lengths += Counter()  # forgets the lengths that none has any more

    def allow(
        self, operation: Operation, kind: ResourceType, name: str, *, principal: str, host: str, if_none: bool
    ) -> bool:
        """Return the decision; `if_none`, where no rule concerns the resource."""
        concerned = allowed = False
        for rule in self._concerning(kind, name):
            concerned = True
            if rule.principal in (principal, ANYBODY) and rule.host in (host, ANYTHING) and _fits(rule, operation):
                if rule.permission_type != ALLOW:
                    return False
                allowed = True
        return allowed if concerned else if_none

    def _concerning(self, kind: int, name: str) -> Iterator[Rule]:
        places = [(kind, LITERAL, literal) for literal in dict.fromkeys((name, ANYTHING))]
        lengths = self._prefix_lengths.get(kind, ())
        places += [(kind, PREFIXED, name[:length]) for length in lengths if length <= len(name)]
        for place in places:
            yield from self._rules.get(place, {}).values()


def _fits(rule: Rule, operation: Operation) -> bool:
    if rule.operation in (Operation.ALL, operation):
        return True
    return rule.permission_type == ALLOW and rule.operation in ALLOWED_BY.get(operation, ())
