"""The bytes of a connection: messages and frames.

`messages` declares them, one module per API. `apis` is the table of the APIs, `frames` puts header and message together
and takes them apart; `fetch_template` does the same for the one hot exchange, at a fraction of the time.
"""

from __future__ import annotations
