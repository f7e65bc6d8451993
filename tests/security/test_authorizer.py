"""The built-in authorizer: every request and every role, and what a replica may do for itself only."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.controller.apis import FORWARDABLE, ROLES
from kraftlib.runtime.net.api_versions import PRIVATE, SERVED, SERVICE
from kraftlib.runtime.net.controller_apis import REFUSED
from kraftlib.security.access import EVERY_ROLE, INCLUDED, NO_ROLE, AccessConfig, Role, of_super_users
from kraftlib.security.authorizer import NEEDED, REMEMBERED_MAX, Authorizer
from kraftlib.types import OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import APIS, ApiKey, PrivateApiKey
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest
from kraftlib.wire.messages.read_barrier import ReadBarrierRequest
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest
from kraftlib.wire.messages.state_digest import StateDigestRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from tools.scenarios import handmade as msg

END = OffsetAndEpoch(epoch=1, offset=1)
VOTER, OBSERVER = 2, 9
PRINCIPALS = {
    Role.REPLICA: "User:kraft",
    Role.ADMIN: "https://ops.example/ann",
    Role.BROKER: "User:broker",
    Role.OBSERVER: "User:archive",
    Role.WRITER: "User:service",
    Role.CLIENT: "User:somebody",
}
TABLE = AccessConfig(
    **{f"{role.value}s": (name,) for role, name in PRINCIPALS.items() if role is not Role.CLIENT}  # type: ignore[arg-type]
)
OF_OBSERVERS = {Role.REPLICA, Role.BROKER, Role.OBSERVER}
CONTROLLER = {**NEEDED, **ROLES}
EVERY_REQUEST = [APIS[key].request() for key in CONTROLLER]


def authorizer(access: AccessConfig = TABLE, **how: Any) -> Authorizer:
    """The judge of cluster blue with the voters 1 to 3."""

    how.setdefault("nobody", NO_ROLE)
    return Authorizer(access=access, cluster_id="blue", is_voter=lambda number: number in (1, 2, 3), **how)


def fetching(replica_id: int) -> list[Any]:
    """What an observer may send under its own id."""
    return [
        msg.fetch(ReplicaKey(replica_id), 3, cluster_id="blue", offset=1, last_epoch=1),
        msg.fetch_snapshot(ReplicaKey(replica_id), 3, cluster_id="blue", snapshot=END, position=0),
        ReadBarrierRequest(replica_id=replica_id, timeout_ms=1),
        SnapshotHashRequest(replica_id=replica_id),
        StateDigestRequest(replica_id=replica_id),
    ]


OF_VOTERS: list[Any] = [
    msg.vote(ReplicaKey(VOTER), 3, cluster_id="blue", end=END),
    msg.begin(VOTER, 3, cluster_id="blue"),
    msg.end(VOTER, 3, cluster_id="blue"),
    ElectionPriorityRequest(leader_epoch=3, voter_id=VOTER, priority=1),
    *fetching(VOTER),
]
WRITE = APIS[PrivateApiKey.CALL].request()
CHANGES: list[Any] = [AddRaftVoterRequest(voter_id=4), RemoveRaftVoterRequest(voter_id=VOTER), UpdateFeaturesRequest()]
LOOKS: list[Any] = [
    APIS[key].request() for key in (ApiKey.DESCRIBE_QUORUM, ApiKey.DESCRIBE_CLUSTER, ApiKey.BROKER_REGISTRATION)
]


def may(judge: Authorizer, principal: str | None, request: Any) -> bool:
    return judge.complaint((principal,) if principal else (), request) is None


@pytest.mark.parametrize("role", list(Role))
def test_a_role_may_do_what_kafka_has_its_operation_for(role: Role) -> None:
    judge, principal = authorizer(), PRINCIPALS[role]

    assert {may(judge, principal, request) for request in OF_VOTERS} == {role is Role.REPLICA}
    assert {may(judge, principal, request) for request in CHANGES} == {role is Role.ADMIN}
    assert {may(judge, principal, request) for request in fetching(OBSERVER)} == {role in OF_OBSERVERS}
    assert {may(judge, principal, request) for request in fetching(-1)} == {role in OF_OBSERVERS}
    assert may(judge, principal, WRITE) is (role in (Role.REPLICA, Role.WRITER))
    assert {may(judge, principal, request) for request in LOOKS} == {True}
    assert may(judge, principal, UpdateRaftVoterRequest(voter_id=VOTER)) is (role in (Role.REPLICA, Role.ADMIN))


def test_nobody_may_do_nothing_by_default_and_everything_where_that_was_said() -> None:
    for request in [*OF_VOTERS, *CHANGES, *fetching(OBSERVER), *LOOKS, UpdateRaftVoterRequest(voter_id=VOTER)]:
        assert not may(authorizer(), None, request)
        assert may(authorizer(nobody=EVERY_ROLE), None, request)
        assert may(authorizer(nobody=EVERY_ROLE), PRINCIPALS[Role.CLIENT], request) is (request in LOOKS)


def test_a_certificate_that_names_a_replica_is_one_and_changes_its_own_vote_only() -> None:
    judge, principal = authorizer(), f"kraft://blue/{VOTER}"

    assert all(may(judge, principal, request) for request in [*OF_VOTERS, *fetching(OBSERVER), *LOOKS])
    for kind in (AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest):
        assert may(judge, principal, kind(voter_id=VOTER))
        assert not may(judge, principal, kind(voter_id=3))
    assert not may(judge, principal, UpdateFeaturesRequest())


def test_a_user_that_is_bound_to_a_replica_is_one() -> None:
    judge = authorizer(bound_ids=lambda principals: (VOTER,) if "User:replica-2" in principals else ())

    assert all(may(judge, "User:replica-2", request) for request in OF_VOTERS)
    assert may(judge, "User:replica-2", RemoveRaftVoterRequest(voter_id=VOTER))
    assert not may(judge, "User:replica-2", RemoveRaftVoterRequest(voter_id=3))
    assert not any(may(judge, "User:replica-3", request) for request in OF_VOTERS)


def test_a_certificate_of_another_cluster_is_that_of_a_client() -> None:
    for principal in ("kraft://green/2", "cert:kraft://blue/2", "https://blue.example/2", "kraft://blue/two"):
        assert not any(may(authorizer(), principal, request) for request in [*OF_VOTERS, *CHANGES])
        assert all(may(authorizer(), principal, request) for request in LOOKS)


@given(st.sets(st.sampled_from(list(Role))), st.booleans(), st.sampled_from([NEEDED, CONTROLLER]))
def test_every_request_is_allowed_or_refused_by_every_set_of_roles(
    roles: set[Role], is_voter: bool, needed: dict[int, Role]
) -> None:
    """None raises, on a controller or not: requests of an observer name a replica in different fields, or none."""
    held = NO_ROLE.union(*(INCLUDED[role] for role in roles))
    judge = authorizer(nobody=held, needed=needed)
    judge.is_voter = lambda number: is_voter

    for request in EVERY_REQUEST:
        role = needed.get(request.api_key)
        if is_voter and role is Role.OBSERVER:
            role = Role.REPLICA  # they speak as a voter
        corrects_itself = request.api_key == ApiKey.UPDATE_RAFT_VOTER and Role.REPLICA in held
        assert (judge.complaint((), request) is None) is (role in held or corrects_itself), request


def test_a_broker_vouches_for_users_and_never_makes_a_replica_of_them() -> None:
    judge = authorizer(needed=CONTROLLER, bound_ids=lambda names: (2,) if "User:replica-2" in names else ())

    def allowed(client: str, broker: tuple[str, ...] = ("User:broker",)) -> set[int]:
        requests = [APIS[key].request() for key in FORWARDABLE]
        return {one.api_key for one in requests if judge.complaint_of_forwarded(client, one, broker=broker) is None}

    own_tokens = {ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN}
    looks = {ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_QUORUM} | own_tokens
    assert allowed("User:somebody") == allowed("User:kraft") == allowed("User:replica-2") == looks
    judge.access = AccessConfig(admins=("User:ann",))
    assert allowed("User:ann") == FORWARDABLE
    assert allowed("User:ANONYMOUS") == set(), "whom a broker has not authenticated is nobody"
    judge.nobody = EVERY_ROLE
    assert allowed("User:ANONYMOUS") == set(), "on loopback, too"
    assert allowed("User:ANONYMOUS", broker=()) == FORWARDABLE, "it could ask without the broker"
    judge.access = AccessConfig(**of_super_users("User:ANONYMOUS;User:CN=ann,OU=ops"))  # type: ignore[arg-type]
    assert allowed("User:ANONYMOUS") == allowed("User:CN=ann,OU=ops") == FORWARDABLE, "Kafka's own list says so"
    assert allowed("User:CN=ann") == looks


def test_a_certificate_adds_nothing_to_a_password_and_may_contradict_it() -> None:
    """Replica 2's certificate with the password of a client is that client; replica 2's password is that replica's."""
    bound = {"User:replica-2": (2,), "User:controller": (1, 2, 3)}
    judge = authorizer(bound_ids=lambda names: [each for name in names for each in bound.get(name, ())])
    removal = RemoveRaftVoterRequest

    for certificate in ("kraft://blue/2", PRINCIPALS[Role.ADMIN]):
        client = ("User:grafana", certificate)
        assert all(judge.complaint(client, request) is not None for request in [*OF_VOTERS, *CHANGES])
        assert all(judge.complaint(client, request) is None for request in LOOKS)
    for user in ("User:replica-2", "User:controller", PRINCIPALS[Role.REPLICA]):
        right = (user, "kraft://blue/2")
        assert all(judge.complaint(right, request) is None for request in OF_VOTERS)
        assert judge.complaint(right, removal(voter_id=2)) is None
        assert judge.complaint(right, removal(voter_id=3)) is not None
    for certificate in ("kraft://blue/4", "kraft://green/2", "kraft://blue/two"):
        wrong = ("User:replica-2", certificate)
        assert all(judge.complaint(wrong, request) is not None for request in [*OF_VOTERS, removal(voter_id=2)])


def test_a_certificate_with_a_name_that_cannot_be_read_names_nobody() -> None:
    names = ("kraft://blue/2", "kraft://blue/two")

    assert all(authorizer().complaint(names, request) is not None for request in [*OF_VOTERS, *CHANGES])


def test_a_peer_has_the_roles_of_all_its_principals() -> None:
    judge = authorizer()
    both = ("kraft://blue/2", PRINCIPALS[Role.ADMIN])

    assert all(judge.complaint(both, request) is None for request in [*OF_VOTERS, *CHANGES])


def test_certificates_without_a_name_are_replicas_where_tls_says_so() -> None:
    judge = authorizer(unnamed_replicas=True)

    assert all(may(judge, "cert:controller-1", request) for request in OF_VOTERS)
    for principal in ("User:somebody", "unix:1000", "kraft://green/2", "KRAFT://green/2"):
        assert not any(may(judge, principal, request) for request in OF_VOTERS)


def test_every_served_request_needs_a_role_and_an_unknown_one_is_refused() -> None:
    class Unknown:
        api_key = 12_345

    assert set(SERVED) | set(PRIVATE) | set(SERVICE) | set(REFUSED) == set(NEEDED) | {ApiKey.API_VERSIONS}
    assert set(NEEDED) <= set(ApiKey) | set(PrivateApiKey)
    assert authorizer().complaint(("User:kraft", "User:ops"), Unknown()) == (
        "Unknown needs no known role, which User:kraft does not have"
    )


def test_a_complaint_names_the_role_and_the_list() -> None:
    complaint = authorizer().complaint(("User:somebody",), RemoveRaftVoterRequest(voter_id=1))

    assert (
        complaint == "RemoveRaftVoterRequest needs the role admin ([access] admins), which User:somebody does not have"
    )


def test_many_principals_take_no_memory() -> None:
    judge = authorizer()
    for number in range(3 * REMEMBERED_MAX):
        judge.complaint((f"cert:{number}",), LOOKS[0])

    assert len(judge._grants) <= REMEMBERED_MAX
