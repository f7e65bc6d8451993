"""The judgement of a request: roles, the application, the replica id; of a forwarded one the broker, too."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.controller.apis import FORWARDABLE, OF_THE_REPLICA, ROLES, VERSIONS
from kraftlib.runtime.net.identity import Identities
from kraftlib.runtime.net.judge import NOT_BY_THE_APPLICATION, Judge
from kraftlib.runtime.net.transport import Peer
from kraftlib.security.access import NO_ROLE, AccessConfig
from kraftlib.security.authorizer import NEEDED, Authorizer
from kraftlib.types import OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import APIS, ApiKey
from kraftlib.wire.messages.controller_registration import ControllerRegistrationRequest
from tools.scenarios import handmade as msg

END = OffsetAndEpoch(epoch=1, offset=1)
BROKER, TRUSTED = Peer("10.0.0.9:5", ("User:broker",)), Peer("10.0.0.9:5", ("User:trusted",))
ACCESS = AccessConfig(
    admins=("User:ann", "User:trusted"), brokers=("User:broker", "User:trusted"), observers=("cert:CN=archive",)
)


def judge(**how: Any) -> Judge:
    authorizer = Authorizer(
        access=ACCESS,
        cluster_id="blue",
        nobody=NO_ROLE,
        is_voter=lambda number: number in (1, 2, 3),
        needed={**NEEDED, **ROLES},
    )
    return Judge(authorizer=authorizer, identities=Identities(cluster_id="blue"), handled=frozenset(VERSIONS), **how)


@pytest.mark.parametrize("broker", [BROKER, TRUSTED])
def test_what_the_replica_answers_itself_is_forwarded_with_the_rights_of_both(broker: Peer) -> None:
    """A client that is an admin gets voters changed through a broker that is one, too."""
    ann = Peer("10.0.0.1:0", ("User:ann",), forwarded_by=broker)
    taken = {key for key in FORWARDABLE if judge().refusal(ann, APIS[key].request()) is None}
    assert taken == (FORWARDABLE if broker is TRUSTED else FORWARDABLE - OF_THE_REPLICA | {ApiKey.DESCRIBE_QUORUM})
    other = Peer("10.0.0.1:0", ("User:somebody",), forwarded_by=broker)
    assert judge().refusal(other, APIS[ApiKey.CREATE_TOPICS].request()) is not None


def test_each_refusal_says_whether_the_connection_closes() -> None:
    vote = msg.vote(ReplicaKey(2), 3, cluster_id="blue", end=END)
    looks = APIS[ApiKey.DESCRIBE_QUORUM].request()
    found = [
        judge().refusal(BROKER, vote),
        judge().refusal(BROKER, APIS[ApiKey.REMOVE_RAFT_VOTER].request()),
        judge().refusal(Peer("there", ("kraft://blue/3",)), vote),
        judge(authorize=lambda peer, key: False).refusal(BROKER, looks),
    ]
    assert [(each.closes, each.is_identity) for each in found if each is not None] == [
        (True, False),
        (False, False),
        (True, True),
        (False, False),
    ]
    assert found[3] is not None
    assert found[3].reason == NOT_BY_THE_APPLICATION
    assert judge().refusal(Peer("there", ("kraft://blue/2",)), vote) is None


def test_a_replica_registers_no_other_controller() -> None:
    """Else it could send admin clients and brokers to an address of its own."""
    registration = ControllerRegistrationRequest(controller_id=2)
    assert judge().refusal(Peer("there", ("kraft://blue/2",)), registration) is None
    found = judge().refusal(Peer("there", ("kraft://blue/3",)), registration)
    assert found is not None
    assert (found.closes, found.is_identity) == (True, True)


def test_a_fetch_is_that_of_an_observer_unless_its_sender_may_speak_as_a_voter() -> None:
    fetch = msg.fetch(ReplicaKey(9), 3, cluster_id="blue", offset=1, last_epoch=1)
    for name, observes in (("cert:CN=archive", True), ("User:broker", True), ("kraft://blue/9", False)):
        assert judge().as_sender(Peer("there", (name,)), fetch).is_observer is observes
        assert not judge().as_sender(Peer("there", (name,)), APIS[ApiKey.VOTE].request()).is_observer
