"""How Kafka prints messages; that all captured ones come out alike is in tests/wire/test_frames.py."""

from __future__ import annotations

import json
import uuid

import pytest

from kraftlib.codec.json_form import to_json
from kraftlib.errors import LocalProtocolError
from kraftlib.metadata.broker_records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from kraftlib.metadata.config_records import ClientQuotaRecord
from kraftlib.metadata.security_records import UserScramCredentialRecord
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchResponse
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse


def test_names_are_in_camel_case_and_kraft_keeps_its_own() -> None:
    assert json.dumps(to_json(KRaftVersionRecord(kraft_version=1), 0)) == '{"version": 0, "kRaftVersion": 1}'


def test_tagged_fields_are_left_out_where_they_have_their_default() -> None:
    record = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2)
    assert to_json(record, 3) == {"brokerId": 1, "brokerEpoch": 2}
    record = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, fenced=-1, cordoned_log_dirs=())
    assert to_json(record, 3) == {"brokerId": 1, "brokerEpoch": 2, "fenced": -1, "cordonedLogDirs": []}


def test_bytes_are_base64_ids_are_text_and_numbers_are_numbers() -> None:
    scram = to_json(UserScramCredentialRecord(name="a", mechanism=1, salt=b"\xff\xfe\xfd\xfc"), 0)
    assert (scram["salt"], scram["storedKey"]) == ("//79/A==", "")
    quota = to_json(ClientQuotaRecord(entity=(ClientQuotaRecord.EntityData(entity_type="user"),), value=1.5), 0)
    assert (quota["value"], quota["entity"], quota["remove"]) == (
        1.5,
        [{"entityType": "user", "entityName": ""}],
        False,
    )
    broker = to_json(RegisterBrokerRecord(incarnation_id=uuid.UUID(int=1), rack=None), 0)
    assert (broker["incarnationId"], broker["rack"]) == ("AAAAAAAAAAAAAAAAAAAAAQ", None)
    answer = to_json(VoteResponse(error_code=ErrorCode.INVALID_REQUEST), 2)
    assert json.dumps(answer) == '{"errorCode": 42, "topics": []}'


@pytest.mark.parametrize(("records", "empty", "size"), [(b"abc", "", 3), (b"", "", 0), (None, None, None)])
def test_of_records_only_the_size_is_told_or_nothing(records: bytes | None, empty: object, size: object) -> None:
    partition = FetchResponse.PartitionData(records=records)
    response = FetchResponse(responses=(FetchResponse.FetchableTopicResponse(partitions=(partition,)),))
    assert to_json(response, 18)["responses"][0]["partitions"][0]["records"] == empty
    printed = to_json(response, 18, record_sizes=True)["responses"][0]["partitions"][0]
    assert printed["recordsSizeInBytes"] == size
    assert "records" not in printed


def test_a_version_that_cannot_hold_the_message_has_no_json() -> None:
    request = VoteRequest(topics=(VoteRequest.TopicData(partitions=(VoteRequest.PartitionData(pre_vote=True),)),))
    assert to_json(request, 2)["topics"][0]["partitions"][0]["preVote"] is True
    with pytest.raises(LocalProtocolError, match=r"PartitionData\.pre_vote: not in version 1"):
        to_json(request, 1)
    with pytest.raises(LocalProtocolError, match="VoteRequest has no version 3, only 0-2"):
        to_json(request, 3)
    assert "voterId" not in to_json(VoteRequest(voter_id=5), 0)
