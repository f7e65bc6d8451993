"""What an operator does to a replica that is stopped: back it up, restore it, verify it, recover a quorum that is lost.

Nothing here runs while a replica does, but for the backup, which reads the files of one that may be running.
"""

from __future__ import annotations
