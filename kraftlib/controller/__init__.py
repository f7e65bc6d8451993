"""A metadata controller on which Apache Kafka's brokers run: Kafka's QuorumController, in Python (KIP-631).

    from kraftlib.controller import MetadataController

The state of a cluster is a fold of metadata records (`state`, with a manager for features, brokers, topics and
configurations each). Of three controllers the active one, the leader of the log, decides: a request becomes records,
which are appended and folded at once, and is answered when they are committed (`quorum_controller`, pure). The others
fold what is committed, so that the next active controller has nothing to load. `service` puts this on a replica, and
`apis` has the table of the requests served. `MetadataLoader` gives pictures of the cluster and notices of its changes
to listeners on every node.
"""

from __future__ import annotations

from kraftlib.controller.bootstrap import format_controller
from kraftlib.controller.context import ControllerConfig
from kraftlib.controller.metadata_loader import MetadataLoader
from kraftlib.controller.quorum_controller import QuorumController
from kraftlib.controller.results import Decision
from kraftlib.controller.service import MetadataController
from kraftlib.controller.state import ClusterState

__all__ = [
    "ClusterState",
    "ControllerConfig",
    "Decision",
    "format_controller",
    "MetadataController",
    "MetadataLoader",
    "QuorumController",
]
