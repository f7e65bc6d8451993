"""Measures a login: milliseconds from connecting to the first answer, on loopback, by mechanism.

    python -m tools.bench.login

The client and the server are transports in one process, so the work of both sides is in the figure. The first login of
a process also makes the codecs of its messages; the first at a server pays for PBKDF2, and later ones know the salt.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any, Final

from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.runtime.net.transport import Destination
from kraftlib.security.sasl import MECHANISMS, SaslConfig
from kraftlib.security.sasl_users import load_users
from kraftlib.testing.transport_contract import station
from kraftlib.types import Endpoint

LOOPBACK: Final = Endpoint("127.0.0.1", 0)
LOGINS: Final = 200


async def measure(mechanism: str | None) -> list[float]:
    """Return the milliseconds of each login; None: without SASL."""
    sasl: Any = None
    if mechanism is not None:
        config = SaslConfig(username="bench", password="of the bench", mechanism=mechanism)
        sasl = load_users(config, 1, encrypted=False, insecure=True)
    took = []
    async with (
        station(lambda at: TcpTransport(LOOPBACK, sasl=sasl)) as server,
        station(lambda at: TcpTransport(LOOPBACK, sasl=sasl)) as client,
    ):
        destination = Destination(1, server.endpoint)
        for number in range(LOGINS):
            began = time.perf_counter()
            client.ask(destination)
            await client.until_heard(number + 1)
            took.append((time.perf_counter() - began) * 1_000)
            client.transport.disconnect(destination)
            await asyncio.sleep(0)
    return took


def main() -> None:
    """Print a table."""
    print(f"{'mechanism':15}{'first, ms':>11}{'median, ms':>12}{'p99, ms':>9}")
    for mechanism in (None, *MECHANISMS):
        took = asyncio.run(measure(mechanism))
        later = sorted(took[1:])
        p99 = later[int(len(later) * 0.99)]
        print(f"{mechanism or 'no SASL':15}{took[0]:11.1f}{statistics.median(later):12.2f}{p99:9.2f}")


if __name__ == "__main__":
    main()
