"""Frames and messages between replicas: transports below, the request sender and the request server above them.

transport (contract) - tcp, memory_transport          frames: one request in, one reply out
network - request_sender, request_server              messages: versions, matching of responses, authorization
"""

from __future__ import annotations
