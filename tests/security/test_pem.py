"""kraftlib.security.pem: when the certificates and lists of a file end."""

from __future__ import annotations

import base64
import re
from datetime import timedelta
from pathlib import Path

import pytest

from kraftlib.security.pem import parts
from tests.security.authority import DAY, Authority, now


def test_a_file_tells_whose_its_parts_are_and_when_they_end(tmp_path: Path) -> None:
    authority = Authority(tmp_path, ends=30 * 365 * DAY)
    issued = authority.issue(ends=7 * DAY)
    own, root, revoked = parts(issued.key + issued.certificate + b"# a comment\n" + authority.pem + authority.revoke(1))

    assert [part.is_list for part in (own, root, revoked)] == [False, False, True]
    assert root.name == revoked.name != own.name
    at = now().timestamp()
    for part, ends in ((own, 7 * DAY), (root, 30 * 365 * DAY), (revoked, DAY)):
        assert part.ends_at == pytest.approx(at + ends.total_seconds(), abs=60)
        assert part.begins_at == pytest.approx(at - timedelta(days=1).total_seconds(), abs=60)
    assert parts(b"nothing of this kind") == []


def test_a_part_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for whole in (authority.pem, authority.revoke(1)):
        label = re.findall(rb"BEGIN ([^-]+)-", whole)[0]
        der = base64.b64decode(b"".join(whole.splitlines()[1:-1]))
        for end in range(len(der)):
            text = base64.b64encode(der[:end])
            with pytest.raises(ValueError, match=r"DER|fields|unpack"):
                parts(b"-----BEGIN %s-----\n%s\n-----END %s-----\n" % (label, text, label))
