"""A standby registers itself with the active controller, as Kafka's ControllerRegistrationManager does (KIP-919).

So admin clients find every controller, and no feature is raised to a level that one of them cannot work with.
"""

from __future__ import annotations

from typing import Final

from kraftlib.controller.registration import PLACE, RANGE, copies
from kraftlib.controller.state import ClusterState
from kraftlib.controller.versions import has_controller_registrations
from kraftlib.metadata.broker_records import RegisterControllerRecord
from kraftlib.wire.messages.controller_registration import ControllerRegistrationRequest as Request

FIRST_RETRY_MS: Final = 500
LAST_RETRY_MS: Final = 60_000


class Announcement:
    """Asks again and again, less and less often, until the registration of this process stands in the log."""

    def __init__(self, me: RegisterControllerRecord) -> None:
        self._me: Final = me
        self._next_ms = 0
        self._retry_ms = FIRST_RETRY_MS

    def begin(self) -> None:
        """Another controller is active: it may be asked at once."""
        self._next_ms, self._retry_ms = 0, FIRST_RETRY_MS

    def due(self, state: ClusterState, now_ms: int) -> Request | None:
        """Return the request that is to be sent now, if one is."""
        known = state.cluster.controllers.get(self._me.controller_id)
        if (
            not has_controller_registrations(state.features.metadata_version)
            or (known is not None and known.incarnation_id == self._me.incarnation_id)
            or now_ms < self._next_ms
        ):
            return None
        self._next_ms = now_ms + self._retry_ms
        self._retry_ms = min(2 * self._retry_ms, LAST_RETRY_MS)
        return Request(
            controller_id=self._me.controller_id,
            incarnation_id=self._me.incarnation_id,
            listeners=copies(Request.Listener, self._me.end_points, PLACE),
            features=copies(Request.Feature, self._me.features, RANGE),
        )
