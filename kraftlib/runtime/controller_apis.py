"""What Kafka's brokers and controllers ask the active controller, and what a leader says that is none.

In a quorum of Kafka's controllers the leader of the log is also the active controller: brokers register with it, send
it heartbeats and their clients' requests. A replica of ours that leads for a moment (`RaftConfig.yield_to`) serves
these requests just to refuse them: whoever hears NOT_CONTROLLER looks for the controller and asks again, while an API
that is not there at all is an error that Kafka logs, or a closed connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftlib.codec.declarations import Message
from kraftlib.codec.versions import Versions
from kraftlib.wire.apis import APIS, ApiKey, ErrorCode

REFUSED: Final[Mapping[int, Versions]] = {
    ApiKey.ALTER_PARTITION: Versions(2, 3),
    ApiKey.ENVELOPE: Versions(0, 0),
    ApiKey.BROKER_REGISTRATION: Versions(0, 4),
    ApiKey.BROKER_HEARTBEAT: Versions(0, 2),
    ApiKey.UNREGISTER_BROKER: Versions(0, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: Versions(0, 0),
    ApiKey.CONTROLLER_REGISTRATION: Versions(0, 0),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Versions(0, 0),
}
"""The versions that a controller of Kafka 4.3 serves."""


def refusal(api_key: int) -> Message:
    """Return the answer that sends the asker to the controller; each of these has a top-level error code."""
    response: Message = APIS[api_key].response(error_code=ErrorCode.NOT_CONTROLLER)  # type: ignore[call-arg]
    return response
