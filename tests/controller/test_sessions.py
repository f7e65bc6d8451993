from __future__ import annotations

from kraftlib.controller.sessions import Sessions


def test_a_session_lasts_from_the_last_sign_of_life() -> None:
    sessions = Sessions(9_000)
    assert not sessions.is_live(1, 5, 0)
    sessions.heard(1, 5, 1_000)
    assert sessions.is_live(1, 5, 10_000)
    assert not sessions.is_live(1, 5, 10_001)
    assert not sessions.is_live(1, 6, 1_000)
    sessions.end(1, 1_000)
    assert not sessions.is_live(1, 5, 1_000)


def test_sessions_end_in_the_order_in_which_brokers_were_heard_and_those_that_left_end_before_all() -> None:
    sessions = Sessions(9_000)
    for broker_id, heard_ms in ((1, 1_000), (2, 2_000), (3, 9_000)):
        sessions.heard(broker_id, 5, heard_ms)
    sessions.end(3, 9_000)
    sessions.heard(1, 5, 9_000)
    found = []
    while (broker_id := sessions.ended(12_001)) is not None:
        found.append(broker_id)
        sessions.forget(broker_id)
    assert found == [3, 2]
    assert sessions.ended(18_001) == 1


def test_a_new_epoch_of_a_broker_begins_with_nothing_read() -> None:
    sessions = Sessions(9_000)
    sessions.heard(1, 5, 0).metadata_offset = 70
    sessions.heard(2, 6, 0).metadata_offset = 50
    assert sessions.lowest_offset([1, 2]) == 50
    assert sessions.heard(1, 8, 1).metadata_offset == -1
    assert sessions.lowest_offset([]) > 1 << 60
