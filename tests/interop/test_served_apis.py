"""The APIs of a controller in each of their versions: Kafka's is asked the same as ours."""

from __future__ import annotations

from typing import Final

import pytest

from kraftlib.controller.apis import SERVED
from kraftlib.wire.apis import APIS, ApiKey
from kraftlib.wire.messages.acls import DescribeAclsRequest
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from tests.interop.asked import Asked
from tests.interop.lab import Lab
from tests.interop.test_admin_requests import controllers, done

ALL: Final = frozenset(SERVED) | {ApiKey.DESCRIBE_CLUSTER}
ANY: Final = 1


def any_rule(version: int) -> DescribeAclsRequest:
    """Return the filter that all rules fit: with fields that are not set, Kafka's controller closes the connection."""
    pattern = {"pattern_type_filter": ANY} if version else {}
    return DescribeAclsRequest(resource_type_filter=ANY, operation=ANY, permission_type=ANY, **pattern)


def versions(there: Asked) -> dict[int, range]:
    """Return what a controller says that it serves."""
    answer = there.ask(ApiVersionsRequest(client_software_name="lab", client_software_version="1"), 3)
    return {row.api_key: range(row.min_version, row.max_version + 1) for row in answer.api_keys}


@pytest.mark.each_release
def test_each_api_is_answered_as_by_kafka_in_every_common_version(lab: Lab) -> None:
    """A request of which no field is set: the same answer in each version. `tests/controller` has the ranges."""
    pair: tuple[Asked, Asked]
    for pair in controllers(lab, elr=0):
        theirs, ours = map(versions, pair)
        differing = []
        for key in sorted(ALL):
            both = sorted({*theirs[key]} & {*ours[key]})
            assert both, f"{ApiKey(key).name} is not served"
            for version in both:
                request = any_rule(version) if key == ApiKey.DESCRIBE_ACLS else APIS[key].request()
                answers = [done(there, request, version) for there in pair]
                if answers[0] != answers[1]:
                    differing.append((ApiKey(key).name, version, *answers))
        assert differing == []
