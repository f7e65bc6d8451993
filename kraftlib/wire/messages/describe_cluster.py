"""DescribeCluster (60): cluster id, nodes, controller; the first request of an admin client (KIP-700, KIP-919,
KIP-1073)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, Struct, array, boolean, int8, int16, int32, message, string


@message(kind="request", api_key=60, versions="0-2", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class DescribeClusterRequest(Message):
    """Asks a broker for the brokers, or a controller for the controllers."""

    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


@message(kind="response", api_key=60, versions="0-2", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class DescribeClusterResponse(Message):
    """The nodes, and which of them is the controller."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", default=-1)
    brokers: tuple[DescribeClusterBroker, ...] = array("DescribeClusterBroker", "0+")
    cluster_authorized_operations: int = int32("0+", default=-2147483648)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class DescribeClusterBroker(Struct):
        """A node: broker or controller."""

        broker_id: int = int32("0+")
        host: str = string("0+")
        port: int = int32("0+")
        rack: str | None = string("0+", nullable="0+", default=None)
        is_fenced: bool = boolean("2+")
