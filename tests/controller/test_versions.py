from __future__ import annotations

import pytest

from kraftlib.controller.versions import encoded, has_directories, record_version
from kraftlib.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode_record,
)
from kraftlib.types import ZERO_UUID, new_uuid


@pytest.mark.parametrize(
    ("level", "broker", "partition"),
    [(7, 1, 0), (8, 2, 0), (16, 2, 0), (17, 3, 1), (21, 3, 1), (22, 3, 1), (23, 3, 2), (29, 3, 2), (30, 4, 2)],
)
def test_the_version_of_a_record_follows_the_metadata_version(level: int, broker: int, partition: int) -> None:
    assert record_version(RegisterBrokerRecord(), level) == broker
    assert record_version(PartitionRecord(), level) == record_version(PartitionChangeRecord(), level) == partition
    assert record_version(TopicRecord(), level) == 0
    assert has_directories(level) is (partition > 0)
    assert decode_record(encoded(PartitionRecord(), level))[1] == partition


def test_a_change_of_a_broker_is_written_in_the_lowest_version_that_holds_it() -> None:
    change = BrokerRegistrationChangeRecord
    cases = [change(fenced=-1), change(in_controlled_shutdown=1), change(log_dirs=(new_uuid(),))]
    assert [record_version(one, 30) for one in cases] == [0, 1, 2]
    assert record_version(change(cordoned_log_dirs=(ZERO_UUID,)), 30) == 3
    assert record_version(change(cordoned_log_dirs=()), 30) == 3
