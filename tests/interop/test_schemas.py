"""Our declarations, field by field, against the schemas inside the jars of each release."""

from __future__ import annotations

import pytest

from tests.interop.jars import libraries
from tests.interop.kafka import Release
from tools.schemas import main


@pytest.mark.each_release
def test_declarations_are_the_schemas_in_the_jars(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    """Every message and record that we declare equals the schema in the release's jars, in every version of both."""
    jars = [
        str(path)
        for name in ("kafka-clients", "kafka-metadata", "kafka-raft")
        for path in libraries(release.version).glob(f"{name}-{release.version}.jar")
    ]
    status = main(["diff", "--only-declared", *jars])
    told = capsys.readouterr().out

    assert len(jars) == 3
    if release.is_modern:
        assert status == 0, told
    # 3.9 has versions that 4.0 has dropped; what both sides know is the same.
    assert "in version" not in told
    assert "api key" not in told
