"""Frames and messages between replicas: transports below, the request sender and the request server above them.

transport (contract) - tcp, memory_transport          frames: one request in, one reply out
network - request_sender, request_server              messages: versions, who belongs to which question, who may ask
"""

from __future__ import annotations
