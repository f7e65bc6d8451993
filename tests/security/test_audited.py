"""What a line of the audit log says of a request: its subject without secrets, and its outcome."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftlib.security.audited import AUDITED, is_done, outcome_of, subject_of
from kraftlib.wire.apis import APIS
from kraftlib.wire.messages.acls import CreateAclsRequest, DeleteAclsRequest
from kraftlib.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftlib.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kraftlib.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftlib.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlib.wire.messages.elect_leaders import ElectLeadersRequest
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest
from kraftlib.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, AddRaftVoterResponse, RemoveRaftVoterRequest
from kraftlib.wire.messages.unregister_broker import UnregisterBrokerRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kraftlib.wire.messages.vote import VoteRequest
from tests.declared_messages import any_message


def test_configurations_and_topics_are_named() -> None:
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="sasl.jaas.config", config_operation=0, value="secret")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="", configs=(config,))
    altered = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    assert subject_of(altered) == "default (sasl.jaas.config)"
    assert subject_of(DeleteTopicsRequest(topic_names=("a", "b"), timeout_ms=1)) == "a, b"
    assert subject_of(UnregisterBrokerRequest(broker_id=4)) == "broker 4"


def test_what_a_controller_keeps_is_named_without_its_secrets() -> None:
    rule = CreateAclsRequest.AclCreation(
        resource_type=2, resource_name="orders", principal="User:ann", host="*", operation=3, permission_type=3
    )
    every = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=99,
    )
    user = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="ann", mechanism=1, iterations=4_096, salt=b"salt", salted_password=b"secret"
    )
    part = AlterClientQuotasRequest.EntityData(entity_type="user", entity_name=None)
    quota = AlterClientQuotasRequest.EntryData(
        entity=(part,), ops=(AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=1.0, remove=False),)
    )
    moved, nameless = (
        AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=()) for name in ("t", "")
    )
    chosen = ElectLeadersRequest.TopicPartitions(topic="t", partitions=(0,))
    found = [
        subject_of(CreateAclsRequest(creations=(rule,))),
        subject_of(DeleteAclsRequest(filters=(every,))),
        subject_of(AlterUserScramCredentialsRequest(deletions=(), upsertions=(user,))),
        subject_of(AlterClientQuotasRequest(entries=(quota,), validate_only=True)),
        subject_of(AlterPartitionReassignmentsRequest(topics=(moved, nameless))),
        subject_of(ElectLeadersRequest(election_type=0, topic_partitions=(chosen,))),
        subject_of(ElectLeadersRequest(election_type=0, topic_partitions=None)),
    ]
    assert found == [
        "ALLOW READ on TOPIC orders for User:ann",
        "99 any on any any for anybody",
        "user ann",
        "user default (producer_byte_rate) (to validate only)",
        "t, a topic without a name",
        "t",
        "all partitions",
    ]


def test_the_worst_of_several_partitions_is_the_outcome() -> None:
    row = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
    rows = (row(partition_index=0, error_code=0), row(partition_index=1, error_code=85, error_message="no"))
    topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name="t", partitions=rows)
    answer = AlterPartitionReassignmentsResponse(error_code=0, responses=(topic,))
    assert (
        outcome_of(AlterPartitionReassignmentsRequest(topics=()), answer)
        == "1 of 2 done; NO_REASSIGNMENT_IN_PROGRESS: no"
    )


def test_a_subject_says_what_is_changed() -> None:
    disk = UUID(int=500)
    place = AddRaftVoterRequest.Listener(name="CONTROLLER", host="db-4\nforged", port=9_093)
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="kraft.version", max_version_level=1)

    assert subject_of(AddRaftVoterRequest(voter_id=4, voter_directory_id=disk, listeners=(place,))) == (
        "voter 4:AAAAAAAAAAAAAAAAAAAB9A at CONTROLLER='db-4\\nforged':9093"
    )
    assert subject_of(RemoveRaftVoterRequest(voter_id=4)) == "voter 4"
    assert subject_of(UpdateFeaturesRequest(feature_updates=(update,))) == "kraft.version to level 1"
    assert subject_of(ElectionPriorityRequest(leader_epoch=1, voter_id=4, priority=9)) == "voter 4 with priority 9"
    assert subject_of(VoteRequest(voter_id=4)) == ""


def test_an_outcome_is_the_error_with_its_words() -> None:
    row = UpdateFeaturesResponse.UpdatableFeatureResult(feature="kraft.version", error_code=95, error_message="no")
    added, updated = AddRaftVoterRequest(voter_id=4), UpdateFeaturesRequest(feature_updates=())

    assert outcome_of(added, None) == "the connection was closed"
    assert outcome_of(added, AddRaftVoterResponse(error_code=0, error_message=None)) == "NONE"
    assert (
        outcome_of(added, AddRaftVoterResponse(error_code=126, error_message="2 votes")) == "DUPLICATE_VOTER: 2 votes"
    )
    assert outcome_of(updated, UpdateFeaturesResponse(results=(row,))) == "INVALID_UPDATE_VERSION: no"


@pytest.mark.parametrize("api_key", AUDITED)
def test_every_version_of_what_is_audited_can_be_put_in_words(api_key: int) -> None:
    api, subjects = APIS[api_key], set()
    for version in api.versions:
        for seed in range(8):
            request, answer = any_message(api.request, version, seed), any_message(api.response, version, seed)
            subjects.add(subject_of(request))
            assert outcome_of(request, answer)
            assert is_done(request, answer) in (True, False)
            assert not is_done(request, None)
    assert any(subjects)
