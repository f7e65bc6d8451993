"""AlterUserScramCredentials: the passwords of users, salted and hashed by the client that sends them (KIP-554)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kraftlib.codec.declarations import Message
from kraftlib.controller.context import Context
from kraftlib.controller.keyed import scram_key
from kraftlib.controller.results import RECORDS_MAX, Decision, RefusedError
from kraftlib.controller.versions import has_scram
from kraftlib.metadata.security_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from kraftlib.security.scram import keys_of
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)

DIGESTS: Final[Mapping[int, str]] = {1: "sha256", 2: "sha512"}
"""The hash of each mechanism."""

ITERATIONS: Final = range(4_096, 16_384 + 1)

Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Row = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


@attrs.define
class _User:
    """A user of the request: the record for it, or why there is none."""

    record: Message | None = None
    refused: RefusedError | None = None


def alter_user_scram_credentials(context: Context, request: AlterUserScramCredentialsRequest, version: int) -> Decision:
    """Change one credential of each user; the answer has a line for each user."""
    users: dict[str, _User] = {}
    changes: list[Deletion | Upsertion] = [*request.deletions, *request.upsertions]
    for wanted in changes:
        user = users.setdefault(wanted.name, _User())
        if user.refused is not None:
            continue
        try:
            if user.record is not None:
                text = "A user credential cannot be altered twice in the same request"
                raise RefusedError(ErrorCode.DUPLICATE_RESOURCE, text)
            user.record = _record(context, wanted)
            if len(users) > RECORDS_MAX:
                raise RefusedError(ErrorCode.POLICY_VIOLATION, "Excessively large number of users per request.")
        except RefusedError as refused:
            user.record, user.refused = None, refused
    records = [user.record for user in users.values() if user.record is not None]
    return Decision(records, AlterUserScramCredentialsResponse(results=tuple(_row(*one) for one in users.items())))


def _row(name: str, user: _User) -> Row:
    if user.refused is None:
        return Row(user=name, error_message=None)
    return Row(user=name, error_code=user.refused.code, error_message=user.refused.message)


def _record(context: Context, wanted: Deletion | Upsertion) -> Message:
    if not has_scram(context.features.metadata_version):
        raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    if not wanted.name:
        raise RefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    digest = DIGESTS.get(wanted.mechanism)
    if digest is None:
        raise RefusedError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"Unknown SCRAM mechanism {wanted.mechanism}")
    if isinstance(wanted, Deletion):
        if scram_key(wanted.name, wanted.mechanism) not in context.state.keyed.records:
            text = "Attempt to delete a user credential that does not exist"
            raise RefusedError(ErrorCode.RESOURCE_NOT_FOUND, text)
        return RemoveUserScramCredentialRecord(name=wanted.name, mechanism=wanted.mechanism)
    if wanted.iterations not in ITERATIONS:
        few = "few" if wanted.iterations < ITERATIONS.start else "many"
        text = f"Too {few} iterations: {wanted.iterations} is not in {ITERATIONS.start}..{ITERATIONS.stop - 1}"
        raise RefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
    if not wanted.salted_password:  # of which Kafka's controller can make no key
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, "The salted password is empty")
    keys = keys_of(digest, bytes(wanted.salted_password))
    return UserScramCredentialRecord(
        name=wanted.name,
        mechanism=wanted.mechanism,
        salt=wanted.salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=wanted.iterations,
    )
