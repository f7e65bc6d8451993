"""Bugs of observers that fetch from other replicas than the leader (decision 0021)."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

UPSTREAMS: Final = "consensus.extensions.upstreams"
DOWNSTREAM: Final = "consensus.extensions.downstream"
PROFILES: Final = ("membership",)
"""Its runs always have observers."""

MUTANTS: Final = (
    Mutant(
        "upstreams-send-everything",
        "an upstream sends records that are not committed",
        (
            Edit(
                "consensus.observer_rounds.answer_observers",
                "None if isinstance(state.role_state, Leader) else state.high_watermark",
                "None",
            ),
        ),
        profiles=PROFILES,
    ),
    Mutant(
        "observers-with-upstreams-take-everything",
        "an observer with upstreams takes records of the leader that are not committed",
        (
            Edit(
                "consensus.fetch_follower._append",
                "batch.end_offset <= partition.high_watermark",
                "True",
            ),
        ),
        profiles=PROFILES,
    ),
    Mutant(
        "upstreams-are-kept-for-ever",
        "an upstream that is dead is asked again and again",
        (Edit(f"{UPSTREAMS}.leave", "destination != upstreams.chosen", "True"),),
        profiles=PROFILES,
    ),
    Mutant(
        "old-news-is-good-news",
        "an upstream that is cut off is kept",
        (Edit(f"{UPSTREAMS}.note_answer", ">= timeout_ms", ">= 10**9"),),
        profiles=PROFILES,
    ),
    Mutant(
        "news-is-always-new",
        "an upstream that is cut off says that it is not: a circle of upstreams never ends",
        (Edit(f"{UPSTREAMS}.age_field", "min(max(state.now_ms - current_ms, 0), AGE_MAX_MS)", "0"),),
        profiles=PROFILES,
    ),
    Mutant(
        "upstreams-rest-for-no-time",
        "an upstream that has failed is asked again at once",
        (Edit(f"{UPSTREAMS}.leave", "state.now_ms + rest_ms", "state.now_ms"),),
        profiles=PROFILES,
    ),
    Mutant(
        "bytes-of-two-processes-are-mixed",
        "a download goes on with whichever process answers at the address of an upstream",
        (Edit(f"{UPSTREAMS}.doubt_bytes", "state.kept.source_epoch = None", "pass"),),
        profiles=PROFILES,
        slow=True,
    ),
    Mutant(
        "downloads-change-their-source",
        "a download that one replica has begun goes on with another one",
        (Edit(f"{UPSTREAMS}.pause_foreign_download", "role.download = None", "pass"),),
        profiles=PROFILES,
        slow=True,
    ),
    Mutant(
        "new-voters-stay-behind-upstreams",
        "a voter that is being added never sees the record that says so",
        (Edit("consensus.quorum_epoch.handle_begin_quorum_epoch", "note_wanted(state)", "pass"),),
        profiles=PROFILES,
    ),
    Mutant(
        "who-is-ahead-is-not-judged",
        "an observer that was ahead gets records behind a log that may be another one",
        (Edit(f"{DOWNSTREAM}._serve", "NOT_JUDGED if is_ahead else offset", "offset"),),
        profiles=PROFILES,
        slow=True,
    ),
    Mutant(
        "upstreams-judge-no-log",
        "an upstream sends records behind a log that is no prefix of its own",
        (Edit(f"{DOWNSTREAM}._serve", "isinstance(judgement, Diverging)", "False"),),
        profiles=PROFILES,
        equivalent="an observer with upstreams has no such log, unless it was started without them before",
    ),
    Mutant(
        "children-are-forgotten",
        "an upstream of a new epoch leaves Fetches without an answer",
        (Edit(f"{DOWNSTREAM}.answer_downstream", "for one in parked", "for one in ()"),),
        profiles=PROFILES,
    ),
    Mutant(
        "upstreams-serve-too-early",
        "a replica that is far behind serves observers",
        (Edit(f"{DOWNSTREAM}._can_serve", "state.upstreams.current_ms is not None", "True"),),
        profiles=PROFILES,
        slow=True,
    ),
    Mutant(
        "commits-wake-no-children",
        "an observer behind an upstream hears of a commit when its time is up",
        (Edit(f"{DOWNSTREAM}.answer_downstream", "downstream.told < high_watermark", "False"),),
        profiles=PROFILES,
    ),
)
