"""A broken promise of the protocol, and the command that shows it again."""

from __future__ import annotations

Complaint = str | None
"""The problem, or None."""


class InvariantViolation(AssertionError):
    """An invariant does not hold. The message names it, the facts that were seen, and the one command that shows it
    again."""

    def __init__(
        self,
        invariant: str,
        what: str,
        *,
        seed: int,
        time_ms: int,
        replay: str,
        profile: str = "",
        trace_hash: str = "",
    ) -> None:
        super().__init__(f"{invariant} is violated at {time_ms} ms: {what}\nreplay with: {replay}")
        self.invariant = invariant
        """Its id, as in the documentation: `I1`, `V3`."""
        self.what = what
        self.seed = seed
        self.time_ms = time_ms
        """Simulated time."""
        self.replay = replay
        self.profile = profile
        self.trace_hash = trace_hash
