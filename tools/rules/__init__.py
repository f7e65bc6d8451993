"""The rules of the protocol, written a second time: the actions that must follow an event after the events before it.

The invariants say what must never happen in a whole quorum; they see a wrong step only where it does harm. A rule is
about one step of one replica: it works out from the events and actions so far what the next actions must be, and
compares. Each file is one conversation of the protocol. A rule cites the KIP that it comes from, and never calls the
code that it judges.
"""

from __future__ import annotations

from kraftlib.testing.judge import BrokenRuleError
from tools.rules.referee import Referee
from tools.rules.rule_set import RuleSet

__all__ = ["BrokenRuleError", "Referee", "RuleSet"]
