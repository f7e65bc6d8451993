"""Jobs about one history need one replica of one log."""

from __future__ import annotations

import attrs

from kraftlib.analysis.options import ReadOptions
from kraftlib.analysis.splits import chosen_files
from kraftlib.errors import ConfigError


def check_one_log(options: ReadOptions) -> None:
    """Check that what is below the path is one replica of one log. Raises: ConfigError that names what is there."""
    labels = sorted({file.labels for file in chosen_files(attrs.evolve(options, include="all"))}, key=str)
    if len(labels) > 1:
        named = "; ".join(
            f"cluster={found.cluster} replica={found.replica} {found.topic}-{found.partition}" for found in labels[:5]
        )
        reason = "logs; name the directory of the one that is meant"
        raise ConfigError(f"{options.path} holds {len(labels)} {reason}: {named}")
