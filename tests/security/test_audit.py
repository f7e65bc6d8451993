"""The audit log: one JSON object a line, whatever peers send, bounded, in a file that may be renamed."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import ConfigError
from kraftlib.security.audit import (
    ANSWERS,
    KEPT_OUT,
    KEYS,
    LINES_MAX,
    MINUTE_S,
    REFUSALS,
    REFUSALS_OF_STRANGERS,
    TEXT_MAX,
    AuditLog,
    Sender,
)
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kraftlib.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kraftlib.wire.messages.propose import ProposeRequest, ProposeResponse
from kraftlib.wire.messages.raft_voters import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from kraftlib.wire.messages.vote import VoteRequest
from tests.clocks import Clock

DONE = RemoveRaftVoterResponse(error_code=0, error_message=None)


def audit(path: Path | None = None, **how: Any) -> AuditLog:
    return AuditLog(node_id=1, cluster_id="blue", path=path, **how)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


def write(log: AuditLog, text: str = "x") -> None:
    sender = Sender(principals=(text,) * 20, address=text, forwarded_by=text)
    log.write("refused", sender=sender, request=text, subject=text, outcome=text)


def removed(log: AuditLog, voter_id: int, answer: Any = DONE, address: str = "10.0.0.1:5") -> None:
    request = RemoveRaftVoterRequest(voter_id=voter_id)
    log.answered(request, answer, sender=Sender(principals=("User:ops",), address=address))


def test_a_line_is_an_object_with_its_keys_in_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kraftlib.audit")
    path = tmp_path / "audit.jsonl"
    removed(audit(path), 3)

    (line,) = lines(path)
    assert list(line) == list(KEYS)
    assert line["time"].endswith("Z")
    assert [line[key] for key in KEYS[1:]] == [
        1, "blue", "answered", ["User:ops"], "10.0.0.1:5", "", "RemoveRaftVoterRequest", "voter 3", "NONE",
    ]  # fmt: skip
    assert [json.loads(message) for message in caplog.messages] == [line]


@given(st.text(max_size=600) | st.sampled_from(["a\n{}", '"', "\x1b[2J", "\ud800", "é" * 999, "\u2028"]))
def test_no_text_of_a_peer_forges_a_line_or_makes_a_long_one(text: str) -> None:
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("kraftlib.audit")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        write(audit(), text)
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)

    (line,) = records
    assert line.isascii()
    assert line.isprintable()
    assert list(json.loads(line)) == list(KEYS)
    assert len(line) < 20 * 12 * TEXT_MAX


def test_the_file_is_for_its_owner_and_is_begun_anew_when_it_was_renamed(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = audit(path)
    before = os.umask(0)
    try:
        log.check()
    finally:
        os.umask(before)
    removed(log, 1)
    path.rename(tmp_path / "audit.1")
    removed(log, 2)
    removed(log, 3)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [line["subject"] for line in lines(tmp_path / "audit.1")] == ["voter 1"]
    assert [line["subject"] for line in lines(path)] == ["voter 2", "voter 3"]


def test_a_file_that_cannot_be_written_is_said_at_the_start_and_stops_nobody_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "missing" / "audit", tmp_path, tmp_path / "link"):
        with pytest.raises(ConfigError, match="cannot be written"):
            audit(path).check()

    log = audit(tmp_path / "missing" / "audit")
    removed(log, 1)
    removed(log, 2)
    assert len([message for message in caplog.messages if "cannot write" in message]) == 1


def test_a_failure_that_repeats_has_one_line_a_minute_and_every_change_has_its_own(tmp_path: Path) -> None:
    path, clock = tmp_path / "audit.jsonl", Clock()
    log = audit(path, clock=clock)
    for _ in range(50):
        removed(log, 7, RemoveRaftVoterResponse(error_code=7, error_message="later"))
    removed(log, 7)
    removed(log, 7)
    assert [line["outcome"] for line in lines(path)] == ["REQUEST_TIMED_OUT: later", "NONE", "NONE"]

    clock.now += MINUTE_S
    removed(log, 7, RemoveRaftVoterResponse(error_code=7, error_message="later"))
    assert [line["outcome"] for line in lines(path)][3:] == ["49 answers have no line here", "REQUEST_TIMED_OUT: later"]


def test_answers_cannot_fill_a_disk(tmp_path: Path) -> None:
    path, clock = tmp_path / "audit.jsonl", Clock()
    log = audit(path, clock=clock)
    for number in range(5_000):
        removed(log, number, None)
        clock.now += 0.001
    assert len(lines(path)) == LINES_MAX[ANSWERS]

    clock.now += MINUTE_S
    removed(log, 1)
    left_out, last = lines(path)[LINES_MAX[ANSWERS] :]
    assert (left_out["event"], left_out["outcome"]) == (
        "left_out",
        f"{5_000 - LINES_MAX[ANSWERS]} answers have no line here",
    )
    assert last["subject"] == "voter 1"


def refuse(log: AuditLog, voter_id: int = 3, *principals: str, address: str = "10.0.0.1:5") -> None:
    log.refused(RemoveRaftVoterRequest(voter_id=voter_id), "no", sender=Sender(principals=principals, address=address))


def test_no_flood_of_strangers_hides_a_refusal_of_a_peer_with_a_name_or_a_change(tmp_path: Path) -> None:
    path, clock = tmp_path / "audit.jsonl", Clock()
    log = audit(path, clock=clock)
    for number in range(2_000):
        refuse(log, address=f"[2001:db8::{number:x}]:5")
        log.kept_out("SaslLogin", "wrong", sender=Sender(address=f"[2001:db8::{number:x}]:5"))
    of_strangers = LINES_MAX[REFUSALS_OF_STRANGERS] + LINES_MAX[KEPT_OUT]
    assert len(lines(path)) == of_strangers

    for number in range(1_000):
        refuse(log, 3, "cert:CN=a", address=f"10.0.0.1:{number}")
        log.refused(VoteRequest(voter_id=number), f"{number}", sender=Sender(principals=(f"cert:CN={number}",)))
    refuse(log, 4, "cert:CN=a")
    found = [(line["request"], line["principals"]) for line in lines(path)[of_strangers:]]
    assert found[0] == ("RemoveRaftVoterRequest", ["cert:CN=a"])
    assert len(found) == LINES_MAX[REFUSALS]

    for number in range(1_000):
        removed(log, number)
    log.summarize(now=True)
    *done, left_out = lines(path)[of_strangers + len(found) :]
    assert [line["subject"] for line in done] == [f"voter {number}" for number in range(1_000)]
    assert left_out["event"] == "left_out"
    assert left_out["outcome"] == (
        f"{2_000 - LINES_MAX[REFUSALS_OF_STRANGERS]} {REFUSALS_OF_STRANGERS}, {2_000 - LINES_MAX[KEPT_OUT]} {KEPT_OUT},"
        f" {2_001 - LINES_MAX[REFUSALS]} {REFUSALS} have no line here"
    )


def test_what_a_foreigner_proposes_has_a_line_a_minute(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log, asked = audit(path), ProposeRequest(timeout_ms=1, level=1, values=(b"secret",))
    for _ in range(99):
        log.answered(asked, ProposeResponse(base_offset=1, results=(b"1",)), sender=Sender(principals=("User:kraft",)))
    (line,) = lines(path)
    assert (line["request"], line["outcome"], line["principals"]) == ("ProposeRequest", "NONE", ["User:kraft"])


def test_changes_of_a_controller_have_lines_and_what_was_done_in_part_says_so(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = audit(path)
    asked = CreateTopicsRequest(topics=tuple(CreateTopicsRequest.CreatableTopic(name=f"t{n}") for n in range(10)))
    rows = [
        CreateTopicsResponse.CreatableTopicResult(name=f"t{n}", error_code=36 if n else 0, error_message="is there")
        for n in range(10)
    ]
    sender = Sender(principals=("User:ann",), address="10.0.0.1:0", forwarded_by="User:broker at 10.0.0.9:5")
    for _ in range(2):
        log.answered(asked, CreateTopicsResponse(topics=tuple(rows)), sender=sender)
        log.answered(
            attrs.evolve(asked, validate_only=True), CreateTopicsResponse(topics=tuple(rows[1:])), sender=sender
        )
    found = [(line["subject"], line["outcome"], line["forwarded_by"]) for line in lines(path)]
    assert found == [
        (
            "t0, t1, t2, t3, t4, t5, t6, t7 and 2 more",
            "1 of 10 done; TOPIC_ALREADY_EXISTS: is there",
            "User:broker at 10.0.0.9:5",
        ),
        (
            "t0, t1, t2, t3, t4, t5, t6, t7 and 2 more (to validate only)",
            "TOPIC_ALREADY_EXISTS: is there",
            "User:broker at 10.0.0.9:5",
        ),
        found[0],
    ]


def test_who_looks_has_a_line_only_if_rules_of_access_refuse_it(tmp_path: Path) -> None:
    path, row = tmp_path / "audit.jsonl", DescribeConfigsRequest.DescribeConfigsResource
    log, sender = audit(path), Sender(principals=("User:bob",), address="10.0.0.9:1")
    asked = DescribeConfigsRequest(resources=tuple(row(resource_type=2, resource_name=name) for name in ("a", "b")))
    result = DescribeConfigsResponse.DescribeConfigsResult
    for codes in ((0, 0), (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED), (ErrorCode.INVALID_REQUEST, 0)):
        rows = [result(error_code=code, error_message=None, resource_type=2, resource_name="") for code in codes]
        log.answered(asked, DescribeConfigsResponse(results=tuple(rows)), sender=sender)
    (line,) = lines(path)
    assert (line["principals"], line["subject"]) == (["User:bob"], "a, b")
    assert line["outcome"] == "1 of 2 done; TOPIC_AUTHORIZATION_FAILED"
