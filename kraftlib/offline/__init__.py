"""Tools for a stopped replica: back it up, restore it, verify it, recover a lost quorum.

Nothing here runs while a replica does, but for the backup, which reads the files of one that may be running.
"""

from __future__ import annotations
