from __future__ import annotations

from typing import Any

import pytest

from kraftlib.wire.apis import APIS, ApiKey, error_answer
from kraftlib.wire.error_rows import error_rows, has_error_row
from kraftlib.wire.frames import decode_response, encode_response
from tests.declared_messages import any_message


@pytest.mark.parametrize("key", sorted(APIS))
def test_every_request_has_an_answer_that_is_an_error_in_every_version(key: int) -> None:
    # ElectLeaders has no place for it before version 1, from which on it is served.
    for version in list(APIS[key].versions)[key == ApiKey.ELECT_LEADERS :]:
        request: Any = any_message(APIS[key].request, version, 5)
        answer = error_answer(request, 41)
        frame = encode_response(answer, version=version, correlation_id=1)
        _, read = decode_response(frame, api_key=key, version=version)
        if error_rows(request, 41) is None:
            assert getattr(answer, "error_code") == 41  # noqa: B009
            assert not has_error_row(read, 41)
        else:
            lists = "topics topic_names resources creations filters entries deletions upsertions".split()
            asked = sum(len(getattr(request, name, ())) for name in lists)
            assert has_error_row(read, 41) is (asked > 0)
            assert not has_error_row(read, 42)
