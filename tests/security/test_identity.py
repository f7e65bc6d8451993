"""kraftlib.security.identity: the names in a certificate, and the replicas that they stand for."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.security.identity import ReplicaName, certificate_names, of_certificate, replica_name, why_not


@pytest.mark.parametrize(
    ("principal", "named"),
    [
        ("kraft://blue/2", ReplicaName("blue", 2)),
        ("KRAFT://blue/2", ReplicaName("blue", 2)),
        ("kraft://AAECAwQFBgcICQoLDA0ODw/12", ReplicaName("AAECAwQFBgcICQoLDA0ODw", 12)),
        ("", None),
        ("cert:kraft://blue/2", None),
        ("kraft://blue", None),
        ("kraft://blue/two", None),
        ("kraft://blue/2/3", None),
        ("kraft://blue/2\n", None),
        ("kraft://blue/٢", None),
    ],
)
def test_a_uri_names_a_replica_of_a_cluster(principal: str, named: ReplicaName | None) -> None:
    assert replica_name(principal) == named


@pytest.mark.parametrize(
    ("certificate", "names"),
    [
        (None, ()),
        ({}, ()),
        ({"subject": ((("commonName", "node-1"),),)}, ("cert:CN=node-1",)),
        (
            {"subject": ((("countryName", "DE"),), (("organizationalUnitName", "x"), ("commonName", "a,b #1 ")))},
            ("cert:OU=x+CN=a\\,b #1\\ ,C=DE",),
        ),
        ({"subject": ((("emailAddress", "a@b"),), (("commonName", "#1"),))}, ("cert:CN=\\#1,emailAddress=a@b",)),
        ({"subject": (), "subjectAltName": (("DNS", "a.example"),)}, ("cert:DNS=a.example",)),
        ({"subject": (), "serialNumber": "07"}, ("cert:",)),
        (
            {"subject": ((("commonName", "x"),),), "subjectAltName": (("URI", "urn:a"), ("URI", "kraft://c/1"))},
            ("urn:a", "kraft://c/1"),
        ),
        ({"subject": ((("commonName", "kraft://c/1"),),)}, ("cert:CN=kraft://c/1",)),
        ({"subjectAltName": (("URI", "User:admin"), ("URI", "UNIX:0"))}, ("cert:User:admin", "cert:UNIX:0")),
    ],
)
def test_a_certificate_names_all_its_uris_and_none_by_its_common_name(certificate: Any, names: tuple[str, ...]) -> None:
    assert certificate_names(certificate) == names


def test_principals_of_passwords_and_sockets_are_of_no_certificate() -> None:
    assert of_certificate(("User:kraft", "unix:0", "cert:x", "kraft://c/1")) == ("cert:x", "kraft://c/1")


def test_unnamed_certificates_stand_for_replicas_only_where_that_is_allowed() -> None:
    """What named ones stand for is seen in handshakes (`test_tls_cases`)."""
    assert why_not(("kraft://green/2", "kraft://blue/3", "kraft://blue/2"), 2, cluster_id="blue", unnamed=False) is None
    assert why_not(("cert:controller",), 2, cluster_id="blue", unnamed=True) is None
    assert "is that of 3" in (why_not(("kraft://blue/3",), 2, cluster_id="blue", unnamed=True) or "")
    assert why_not(("kraft://blue/3",), None, cluster_id="blue", unnamed=False) is None, "any replica of the cluster"
    assert why_not(("kraft://green/2",), 2, cluster_id=None, unnamed=False) is None, "of a cluster that is not known"
