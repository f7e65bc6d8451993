"""Bugs in changes of the voters (KIP-853)."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        "second-change-at-once",
        "voters change again while the last change is not committed (M2)",
        (
            Edit(
                "consensus.voter_changes._change_error",
                "if role.change is not None or role.control_waits:",
                "if False:",
            ),
            Edit("consensus.voter_changes._change_error", " or offset >= state.high_watermark", ""),
        ),
        profiles=("membership",),
        slow=True,
    ),
    Mutant(
        "change-that-waits-is-forgotten",
        "voters change again while the last change, given up by who asked for it, still waits to be appended (M2)",
        (
            Edit("consensus.voter_changes._change_error", " or role.control_waits", ""),
            Edit("consensus.joining._accept_update", " or role.control_waits", ""),
            Edit("consensus.voter_changes.submit_control", "not role.control_waits", "True"),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "change-before-own-commit",
        "voters change before the leader has committed in its epoch (M1; Ongaro, 2015)",
        (
            Edit("consensus.voter_changes._change_error", "if state.high_watermark is None:", "if False:"),
            Edit(
                "consensus.voter_changes._change_error",
                "offset is None or offset >= state.high_watermark",
                "offset is None",
            ),
        ),
        profiles=("membership",),
        slow=True,
    ),
    Mutant(
        "voters-survive-truncation",
        "a truncated log still names the voters that it lost (M3)",
        (
            Edit(
                "consensus.log_view.LogView.truncate",
                "self.voters.truncate(end_offset, known_from=self.header_offset)",
                "pass",
            ),
        ),
        profiles=("membership",),
        slow=True,
    ),
    Mutant(
        "voters-are-read-when-committed",
        "a follower learns of voters only from what it reads at its start",
        (
            Edit(
                "consensus.log_view.LogView._observe_control",
                "self.voters.add(offset",
                "self.voters.at(offset) if self.end_offset else self.voters.add(offset",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "removed-leader-counts-itself",
        "a leader that is no voter any more counts its own copy (M4)",
        (Edit("consensus.fetch_leader.update_high_watermark", "if state.is_voter else []", ""),),
        profiles=("membership",),
        slow=True,
    ),
    Mutant(
        "removed-leader-stays",
        "a leader that has committed its own removal goes on to lead (M5)",
        (Edit("consensus.voter_changes.advance_change", "role.resign_requested = True", "pass"),),
        profiles=("membership",),
        slow=True,
    ),
    Mutant(
        "a-new-disk-is-the-old-voter",
        "a voter that lost its disk counts as the same (M7)",
        (
            Edit(
                "types.ReplicaKey.matches",
                "self.id == other.id and (self.directory_id is None or self.directory_id == other.directory_id)",
                "self.id == other.id",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "progress-does-not-follow-the-voters",
        "a leader keeps counting the voters of before",
        (Edit("consensus.fetch_leader.handle_records", "follow_voters(state, role)", "pass"),),
        profiles=("membership",),
    ),
    Mutant(
        "removed-twice",
        "the removal of a voter removes whoever has its place",
        (
            Edit(
                "consensus.voters.VoterSet.without",
                "voter for voter in self.voters if voter.key != key",
                "voter for voter in self.voters[1:]",
            ),
        ),
        profiles=("membership",),
        slow=True,
    ),
    Mutant(
        "observers-count-when-they-catch-up",
        "an observer that fetches joins the table of voters",
        (
            Edit(
                "consensus.fetch_leader.record_progress",
                "observer = role.observers[key] = Progress(key=key)",
                "observer = role.observers[key] = role.progress.get(key.id) or Progress(key=key)",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "first-epoch-lacks-the-voters",
        "the first leader does not write the voters of the bootstrap checkpoint into the log (M12)",
        (
            Edit(
                "consensus.transitions._first_records",
                "records += [KRaftVersionRecord(kraft_version=kraft_version), current.to_record()]",
                "pass",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "upgrade-forgets-a-voter",
        "the voters of the first dynamic set are not all of the static one",
        (
            Edit(
                "consensus.kraft_version.handle_update_features",
                "for voter in state.voters)",
                "for voter in list(state.voters)[:2])",
            ),
        ),
    ),
    Mutant(
        "leader-counts-itself-twice-after-a-change",
        "once voters have changed, a leader stands in its own table of them, too",
        (
            Edit(
                "consensus.fetch_leader.follow_voters",
                "remote = {voter.key.id: voter.key for voter in state.voters.others(state.key)}",
                "remote = {voter.key.id: voter.key for voter in state.voters}",
            ),
            Edit(
                "consensus.fetch_leader.follow_voters",
                "was_alone = not role.progress",
                "was_alone = not role.progress\n"
                "    known[state.key] = Progress(key=state.key, end_offset=state.log.end_offset)",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "disk-of-a-voter-is-not-looked-at",
        "a Fetch counts for the voter of its id, whatever its disk (M7)",
        (
            Edit(
                "consensus.fetch_leader.record_progress",
                "if key in state.log.voters.latest:",
                "if key.id in role.progress:",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "voters-are-written-without-kraft-version-1",
        "an UpdateRaftVoter is written down where kraft.version is 0",
        (Edit("consensus.joining._accept_update", "if kraft_version == 0:", "if False:"),),
        profiles=(
            "membership",
            "swarm",
        ),
    ),
    Mutant(
        "added-twice",
        "a voter is added whose id votes already, with another disk",
        (
            Edit(
                "consensus.voter_changes.handle_add_voter",
                "if state.voters.get(key.id) is not None:",
                "if key in state.voters:",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "change-is-done-without-a-commit",
        "a voter change is done as soon as it is appended (V6)",
        (
            Edit(
                "consensus.voter_changes.advance_change",
                "if change.offset is not None and state.high_watermark is not None and state.high_watermark > "
                "change.offset:",
                "if change.offset is not None:",
            ),
        ),
        profiles=("membership",),
    ),
    Mutant(
        "directory-ids-are-not-read",
        "voters that are read from the log have no disk (M7)",
        (
            Edit(
                "consensus.voters.VoterSet.from_record",
                "ReplicaKey.of(voter.voter_id, voter.voter_directory_id)",
                "ReplicaKey(voter.voter_id)",
            ),
        ),
        profiles=("membership",),
    ),
)
