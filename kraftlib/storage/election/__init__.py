"""The durable election state of a replica, and its identity.

`store` keeps the vote in `quorum-state`, of which `line` is the codec. `identity` is `kraftlib.json`, which says which
replica has run in a directory.
"""

from __future__ import annotations
