"""All tests of storage may be run once more with threads that change over quickly: KRAFTLIB_SWITCH_INTERVAL=1e-6."""

from __future__ import annotations

import os
import sys

if "KRAFTLIB_SWITCH_INTERVAL" in os.environ:
    sys.setswitchinterval(float(os.environ["KRAFTLIB_SWITCH_INTERVAL"]))
