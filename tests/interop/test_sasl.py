"""A quorum with passwords: a controller of Kafka and voters of ours on SASL_PLAINTEXT, with SCRAM and PLAIN."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Final

import pytest

from kraftlib.security.before_login import SaslError
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.sasl_client import SaslClient
from kraftlib.security.sasl_users import load_users
from kraftlib.types import Endpoint
from tests.interop.kafka import KafkaNode
from tests.interop.lab import BUSY, Lab
from tests.interop.processes import wait_for
from tests.interop.test_voters import finish

USER: Final = "controller"
PASSWORD: Final = "correct horse battery staple"
LOGIN: Final = "org.apache.kafka.common.security"
KAFKAS: Final[Mapping[str, object]] = {
    **BUSY,
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
    "listener.name.controller.plain.sasl.jaas.config": (
        f'{LOGIN}.plain.PlainLoginModule required username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
    ),
    "listener.name.controller.scram-sha-512.sasl.jaas.config": (
        f'{LOGIN}.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
    ),
}
OURS: Final[Mapping[str, object]] = {
    "insecure": True,  # for PLAIN in the clear: the verifiers of SCRAM stand in Kafka's log, which has no leader yet
    "sasl.username": USER,
    "sasl.password": PASSWORD,
    "sasl.mechanism": "PLAIN",
    "sasl.accept": ["SCRAM-SHA-512", "PLAIN"],
    "sasl.replicas.controller": [1, 2, 3],
}


def log_in(endpoint: Endpoint, mechanism: str, password: str, tls: ssl.SSLContext | None = None) -> None:
    """Authenticate with a server. Raises: SaslError; OSError."""
    config = SaslConfig(username=USER, password=password, mechanism=mechanism)
    client = SaslClient(load_users(config, 9, encrypted=False, insecure=True), client_id="test")
    with socket.create_connection((endpoint.host, endpoint.port), timeout=30) as plain, contextlib.ExitStack() as stack:
        wrapped = None if tls is None else tls.wrap_socket(plain, server_hostname=endpoint.host)
        connection = plain if wrapped is None else stack.enter_context(wrapped)
        frame: bytes | None = client.start()
        stream = connection.makefile("rb")
        while frame is not None:
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            frame = client.receive(stream.read(struct.unpack(">i", stream.read(4))[0]))


@pytest.mark.since("4.0")
def test_a_controller_and_voters_of_ours_form_a_quorum_with_passwords(lab: Lab) -> None:
    """Kafka logs in with SCRAM at ours, ours with PLAIN at Kafka; each leads for a while, and all logs are equal.

    At the end our client of SCRAM logs in at Kafka's server of SCRAM, whose verifiers came with the log.
    """
    quorum = lab.static(kafka=[1], ours=[2, 3], properties=KAFKAS, settings=OURS)
    controller = quorum.nodes[1]
    assert isinstance(controller, KafkaNode)
    shutil.rmtree(controller.directory)
    controller.format(lab.cluster_id, "--add-scram", f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]")
    quorum.start()
    wait_for("the controller to lead", lambda: quorum.leader()["leader_id"] == 1)
    quorum.wait_for_growth()

    controller.kill()
    assert quorum.leader(not_id=1)["leader_id"] in (2, 3)
    quorum.start(1)
    wait_for("the controller to lead again", lambda: quorum.leader()["leader_id"] == 1)
    quorum.wait_for_growth()

    for mechanism in ("SCRAM-SHA-512", "PLAIN"):
        log_in(controller.endpoint, mechanism, PASSWORD)
        with pytest.raises(SaslError, match="SASL_AUTHENTICATION_FAILED"):
            log_in(controller.endpoint, mechanism, "another password")
        log_in(quorum.nodes[2].endpoint, mechanism, PASSWORD)
    finish(quorum)
