"""A quorum over TLS: a controller of Kafka and voters of ours with certificates on both sides, alone and with SCRAM."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kraftlib.security.before_login import SaslError
from kraftlib.security.contexts import client_context
from tests.interop.kafka import KafkaNode
from tests.interop.lab import BUSY, Lab, Quorum
from tests.interop.ours import OurReplica
from tests.interop.processes import wait_for
from tests.interop.test_sasl import KAFKAS, OURS, PASSWORD, USER, log_in
from tests.interop.test_voters import finish
from tests.security.authority import Authority

KAFKA: Final = "controller of Kafka"
"""The common name in the certificate of the controller, which has no URI."""


def stores(authority: Authority, home: Path) -> Mapping[str, object]:
    """Return the TLS of a controller: its certificate and key in one PEM file, and both required of its peers."""
    issued = authority.issue(common_name=KAFKA)
    (home / "kafka.pem").write_bytes(issued.key + issued.certificate)
    (home / "ca.pem").write_bytes(authority.pem)
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": home / "kafka.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": home / "ca.pem",
        "listener.name.controller.ssl.client.auth": "required",
    }


def a_quorum(lab: Lab, protocol: str, authority: Authority, settings: Mapping[str, Any]) -> Quorum:
    """Return a controller, 1, and voters of ours, 2 and 3, each with a certificate that names it."""
    passwords = KAFKAS if protocol == "SASL_SSL" else BUSY
    words = {**passwords, **stores(authority, lab.home), "listener.security.protocol.map": f"CONTROLLER:{protocol}"}
    quorum = lab.static(kafka=[1], ours=[2, 3], properties=words, settings=settings)
    for number in (2, 3):
        files = authority.files(str(number), authority.issue(f"kraft://{lab.cluster_id}/{number}"))
        paths = {f"tls.{name}": str(getattr(files, name)) for name in ("cert", "key", "ca")}
        quorum.ours(number, **paths, **{"access.replicas": [f"cert:CN={KAFKA}"]})
    return quorum


def start(quorum: Quorum, *node_ids: int) -> None:
    """Start these, or all, and wait until the controller leads and records are committed."""
    quorum.start(*node_ids)
    wait_for("the controller to lead", lambda: quorum.leader()["leader_id"] == 1)
    quorum.wait_for_growth()


@pytest.mark.since("4.0")
def test_a_controller_and_voters_of_ours_form_a_quorum_with_certificates(lab: Lab) -> None:
    """The certificate of Kafka's is listed in `[access] replicas`, ours name a replica each; each leads for a while."""
    quorum = a_quorum(lab, "SSL", Authority(lab.home), {})
    start(quorum)
    quorum.nodes[1].kill()
    assert quorum.leader(not_id=1)["leader_id"] in (2, 3)
    start(quorum, 1)
    finish(quorum)


@pytest.mark.since("4.0")
def test_a_controller_and_voters_of_ours_form_a_quorum_with_certificates_and_scram(lab: Lab) -> None:
    """Kafka logs in with SCRAM-SHA-512 over TLS. Ours begin with PLAIN, since Kafka has the users of SCRAM in its log;
    once it has a leader, a voter of ours logs in with SCRAM, too, and the quorum commits with its Fetches."""
    authority = Authority(lab.home)
    settings = {name: value for name, value in OURS.items() if name != "insecure"}
    quorum = a_quorum(lab, "SASL_SSL", authority, settings)
    controller, second, third = (quorum.nodes[number] for number in (1, 2, 3))
    assert isinstance(controller, KafkaNode)
    assert isinstance(third, OurReplica)
    shutil.rmtree(controller.directory)
    controller.format(lab.cluster_id, "--add-scram", f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]")
    start(quorum)

    third.kill()
    toml = third.config_file.read_text().replace('sasl.mechanism = "PLAIN"', 'sasl.mechanism = "SCRAM-SHA-512"')
    assert "PLAIN" in toml, "which is still accepted"
    third.config_file.write_text(toml)
    quorum.start(3)
    second.kill()
    quorum.wait_for_growth()
    context = client_context(authority.files("operator", authority.issue(common_name="an operator")))
    log_in(controller.endpoint, "SCRAM-SHA-512", PASSWORD, context)
    with pytest.raises(SaslError, match="SASL_AUTHENTICATION_FAILED"):
        log_in(controller.endpoint, "SCRAM-SHA-512", "another password", context)
    nobodys = ssl.create_default_context(cadata=authority.pem.decode())
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
        log_in(controller.endpoint, "SCRAM-SHA-512", PASSWORD, nobodys)
    start(quorum, 2)
    finish(quorum)
