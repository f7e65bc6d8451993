"""kraftlib.tls_properties: what Kafka says about TLS of its controller listener."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from kraftlib import RaftClient
from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError
from kraftlib.security.tls import TlsConfig
from kraftlib.types import Endpoint
from tests.security.authority import Authority

CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://localhost:9093",
    "listener.security.protocol.map": "CONTROLLER:SSL",
}
STORES = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/etc/kafka/1.pem",
    "ssl.truststore.type": "pem",
    "ssl.truststore.location": "/etc/kafka/ca.pem",
}
SASL = {
    "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.controller.scram-sha-512.sasl.jaas.config": (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="c" password="ppppp";'
    ),
}
EXPECTED = TlsConfig(
    cert=Path("/etc/kafka/1.pem"), key=Path("/etc/kafka/1.pem"), ca=Path("/etc/kafka/ca.pem"), unnamed_replicas=True
)


def words_of(**changes: str) -> tuple[TlsConfig | None, str]:
    words: list[str] = []
    changed = {key.replace("_", "."): value for key, value in changes.items()}
    config = RaftConfig.from_properties({**CONTROLLER, **changed}, tell=words.append)
    assert not config.insecure
    return config.tls, "\n".join(words)


def test_pem_stores_become_the_files_of_tls() -> None:
    tls, words = words_of(**STORES, ssl_client_auth="none", ssl_protocol="TLSv1.3")

    assert tls == EXPECTED
    assert "ssl.truststore.location: certificates without a kraft:// URI may speak as any replica" in words
    assert "ssl.client.auth: kraftlib takes no peer without a certificate" in words
    assert "ssl.protocol: no effect" in words
    assert "keystore" not in words


def test_the_stores_of_the_listener_count_before_the_general_ones() -> None:
    own = {f"listener.name.controller.{key}": value for key, value in STORES.items()}
    assert words_of(**own, ssl_keystore_location="/other.jks")[0] == EXPECTED


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
async def test_a_listener_with_ssl_and_no_stores_is_never_plaintext(protocol: str, tmp_path: Path) -> None:
    words: list[str] = []
    properties = {**CONTROLLER, **SASL, "listener.security.protocol.map": f"CONTROLLER:{protocol}"}
    config = RaftConfig.from_properties(properties, tell=words.append)
    config = attrs.evolve(config, cluster_id="blue", listen=Endpoint("127.0.0.1", 0))

    assert "ssl.keystore.location: missing for a listener with SSL" in "\n".join(words)
    with pytest.raises(ConfigError, match=r"\[tls\] names no files, and neither server_ssl= nor client_ssl= is given"):
        await RaftClient(config).start()
    async with RaftClient(config, **Authority(tmp_path).contexts("kraft://blue/1")):
        pass  # an application may give its own


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ssl.keystore.type": "JKS"}, r"type=JKS: .*keytool -importkeystore .*/etc/kafka/1.pem .*type=PEM"),
        ({"ssl.truststore.type": "PKCS12"}, "ssl.truststore.type=PKCS12: kraftlib reads PEM files only"),
        ({"ssl.truststore.location": ""}, "ssl.truststore.location is missing"),
        ({"ssl.keystore.location": ""}, "ssl.keystore.location is missing"),
        ({"ssl.key.password": "secret"}, "ssl.key.password: kraftlib reads passwords from files only"),
        ({"ssl.keystore.key": "-----BEGIN"}, "ssl.keystore.key: write it into a PEM file, .* in ssl.keystore.location"),
        ({"ssl.endpoint.identification.algorithm": ""}, "nothing would say which server is reached"),
    ],
)
def test_what_kraftlib_cannot_read_is_an_error_with_a_remedy(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        words_of(**{**STORES, **changes})
    assert "secret" not in str(raised.value)
