"""Jobs about one history need one replica of one log."""

from __future__ import annotations

import attrs

from kraftlib.analysis.log_files import Kind
from kraftlib.analysis.options import ReadOptions
from kraftlib.analysis.splits import chosen_files
from kraftlib.errors import ConfigError


def check_one_log(options: ReadOptions) -> None:
    """Check that the path holds one replica of one log. Raises: ConfigError that names what is there."""
    found = chosen_files(attrs.evolve(options, include="all"))
    # bootstrap.checkpoint belongs to the node, and holds no place in a log.
    labels = sorted({file.labels for file in found if file.kind is not Kind.BOOTSTRAP}, key=str)
    if len(labels) > 1:
        named = "; ".join(
            f"cluster={label.cluster} replica={label.replica} {label.topic}-{label.partition}" for label in labels[:5]
        )
        reason = "logs; name the directory of the one that is meant"
        raise ConfigError(f"{options.path} holds {len(labels)} {reason}: {named}")
