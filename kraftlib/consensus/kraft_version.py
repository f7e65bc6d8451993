"""UpdateFeatures raises kraft.version from 0 to 1: a static quorum becomes a dynamic one (KIP-853, UpdateFeatures).

The voters tell the leader their keys and supported versions (UpdateRaftVoter). Once it knows that of all of them, one
control batch with the new version and the voter set makes the quorum dynamic, from the offset at which it is read on.
Other features belong to the application on top, of which this replica knows nothing.
"""

from __future__ import annotations

from kraftlib.consensus.actions import Action
from kraftlib.consensus.events import RequestReceived
from kraftlib.consensus.roles import Leader
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.voter_changes import KRAFT_VERSION_FEATURE, begin_change, reply, submit_control
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.records.control import KRAFT_VERSION_MAX
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest

FEATURES_MAX = 16


def handle_update_features(state: ReplicaState, event: RequestReceived[UpdateFeaturesRequest]) -> list[Action]:
    """Answer an UpdateFeatures: at once where nothing changes, else when the change is committed."""
    request = event.request
    role = state.role_state
    if not isinstance(role, Leader) or state.shutting_down:
        # The error that sends Kafka's admin client to the leader.
        return reply(event, ErrorCode.NOT_CONTROLLER)
    error, message = _features_error(state, request)
    if error is not ErrorCode.NONE:
        return reply(event, error, message)
    if all(update.max_version_level == state.log.kraft_version.latest for update in request.feature_updates):
        error, message = _uncommitted_error(state)
        return reply(event, error, message)
    wanted = VoterSet.of(_as_known(state, role, voter) for voter in state.voters)
    error, message = _upgrade_error(state, role, wanted)
    if error is not ErrorCode.NONE or request.validate_only:
        return reply(event, error, message)
    role.change = begin_change(state, event, state.key.id)
    role.change.wanted = wanted
    return [submit_control(role, KRaftVersionRecord(kraft_version=KRAFT_VERSION_MAX), wanted.to_record())]


def _features_error(state: ReplicaState, request: UpdateFeaturesRequest) -> tuple[ErrorCode, str | None]:
    """Whether the request names kraft.version alone, and a level that it can have from here on."""
    if len(request.feature_updates) > FEATURES_MAX:
        return ErrorCode.INVALID_REQUEST, f"more than {FEATURES_MAX} features"
    for update in request.feature_updates:
        problem = None
        if update.feature != KRAFT_VERSION_FEATURE:
            problem = f"This quorum has no feature but {KRAFT_VERSION_FEATURE}"
        elif update.max_version_level < state.log.kraft_version.latest:
            problem = "Can't downgrade the version of this feature"
        elif update.max_version_level > KRAFT_VERSION_MAX:
            problem = f"The newest one is {KRAFT_VERSION_MAX}"
        if problem is not None:
            text = f"Invalid update version {update.max_version_level} for feature {update.feature}. {problem}."
            return ErrorCode.INVALID_UPDATE_VERSION, text
    return ErrorCode.NONE, None


def _uncommitted_error(state: ReplicaState) -> tuple[ErrorCode, str | None]:
    """Whether the level that stands in our log may still be cut off: then no answer may say that it is in force."""
    offset = state.log.kraft_version.latest_offset
    if offset is None or (state.high_watermark is not None and offset < state.high_watermark):
        return ErrorCode.NONE, None
    return ErrorCode.REQUEST_TIMED_OUT, "this very change is under way, and not committed yet; try again"


def _upgrade_error(state: ReplicaState, role: Leader, wanted: VoterSet) -> tuple[ErrorCode, str | None]:
    """Whether this leader may write, and knows of every voter who it is and that it can follow."""
    if role.change is not None or role.control_waits or state.high_watermark is None:
        return ErrorCode.REQUEST_TIMED_OUT, "a change is under way, or nothing is committed in this epoch; try again"
    lacking = [voter.key.id for voter in wanted if voter.key.directory_id is None or voter.max_kraft_version < 1]
    if lacking:
        text = f"Invalid update version {KRAFT_VERSION_MAX} for feature {KRAFT_VERSION_FEATURE}, because"
        text += f" not all of the voters support it, or have said so yet: {lacking}."
        return ErrorCode.INVALID_UPDATE_VERSION, text
    return ErrorCode.NONE, None


def _as_known(state: ReplicaState, role: Leader, voter: Voter) -> Voter:
    """Return the voter as it has described itself to us; we know ourselves."""
    if voter.key.id != state.key.id:
        return role.reported.get(voter.key.id, voter)
    return Voter(
        key=state.key, endpoints=dict(state.endpoints), min_kraft_version=0, max_kraft_version=KRAFT_VERSION_MAX
    )
