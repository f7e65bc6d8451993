"""AlterUserScramCredentials (51): passwords of users, for SASL/SCRAM (KIP-554)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, Struct, array, binary, int8, int16, int32, message, string


@message(kind="request", api_key=51, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AlterUserScramCredentialsRequest(Message):
    """The credentials that are to go, and those that are new or replaced."""

    deletions: tuple[ScramCredentialDeletion, ...] = array("ScramCredentialDeletion", "0+")
    upsertions: tuple[ScramCredentialUpsertion, ...] = array("ScramCredentialUpsertion", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class ScramCredentialDeletion(Struct):
        """One that is to go."""

        name: str = string("0+")
        mechanism: int = int8("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class ScramCredentialUpsertion(Struct):
        """One that is new: the password is salted and hashed already."""

        name: str = string("0+")
        mechanism: int = int8("0+")
        iterations: int = int32("0+")
        salt: bytes = binary("0+")
        salted_password: bytes = binary("0+")


@message(kind="response", api_key=51, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AlterUserScramCredentialsResponse(Message):
    """The result for each user."""

    throttle_time_ms: int = int32("0+")
    results: tuple[AlterUserScramCredentialsResult, ...] = array("AlterUserScramCredentialsResult", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class AlterUserScramCredentialsResult(Struct):
        """One user."""

        user: str = string("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
