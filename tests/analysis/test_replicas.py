"""One log, or an error that names the others."""

from __future__ import annotations

import pytest

from kraftlib.analysis.reading import options_of
from kraftlib.analysis.replicas import check_one_log
from kraftlib.errors import ConfigError
from tests.captured import DATA


def test_one_is_fine_and_two_are_named() -> None:
    check_one_log(options_of(DATA / "kafka-4.3.1" / "n4"))
    check_one_log(options_of(DATA / "kafka-4.3.1" / "n1"))  # its bootstrap.checkpoint is no log of its own
    with pytest.raises(ConfigError, match=r"replica=1 __cluster_metadata-0; .*replica=4 __cluster_metadata-0"):
        check_one_log(options_of(DATA / "kafka-4.3.1"))
