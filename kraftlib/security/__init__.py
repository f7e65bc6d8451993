"""Trust between replicas and clients: certificates, passwords, limits and rules.

The modules hold options (frozen values, fields of `RaftConfig`) and decisions. `kraftlib.runtime.net` carries them out.
"""

from __future__ import annotations
