"""The requests before a login. `test_sasl_server.py` has the login itself."""

from __future__ import annotations

from kraftlib.security.before_login import SERVED, may_stand_first, too_early
from kraftlib.wire.apis import ApiKey, api


def test_only_the_login_and_the_question_for_versions_come_first() -> None:
    assert {key for key in ApiKey if may_stand_first(key)} == {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    }
    assert str(int(ApiKey.FETCH)) in too_early(ApiKey.FETCH)


def test_the_served_versions_are_versions_that_can_be_read() -> None:
    for key, versions in SERVED.items():
        known = api(key)
        assert known is not None
        assert set(versions) <= set(known.versions)
