"""A host that has used up its descriptors costs no vote and no record: a few are in hand."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraftlib.storage import descriptors

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import os, resource, sys
from pathlib import Path
from kraftlib.storage.election.store import FileQuorumStateStore
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.types import ElectionState
from tests.storage.builders import some_batches

directory = Path(sys.argv[1])
elections = FileQuorumStateStore(directory)
log = FileReplicatedLog.open(directory, segment_bytes=1_000, tail_bytes=0)
elections.write(ElectionState(epoch=1), kraft_version=0)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for epoch in (2, 3):
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    elections.write(ElectionState(epoch=epoch), kraft_version=0)
    for _ in range(10):
        log.append(some_batches(*[epoch] * 4, base_offset=log.end_offset, size=200))
        log.flush()
    assert log.read(0, 1)[0].base_offset == 0
    log.truncate(log.end_offset - 30)
    for descriptor in held:
        os.close(descriptor)
    assert log.read(0, 1)[0].base_offset == 0  # there are some again, which are taken for the next time
log.close()
assert FileQuorumStateStore(directory).read().epoch == 3
"""


def test_votes_and_records_go_on_while_the_host_has_no_descriptor_left(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, timeout=120, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_what_finds_none_however_often_is_an_error(number: int) -> None:
    tried: list[int] = []

    def never() -> None:
        tried.append(1)
        raise OSError(number, os.strerror(number))

    descriptors.spend(lambda: None)  # now they are in hand
    with pytest.raises(OSError, match=os.strerror(number)):
        descriptors.spend(never)
    assert len(tried) >= descriptors.SPARE + 1


def test_any_other_error_gives_nothing_back() -> None:
    tried: list[int] = []

    def missing() -> None:
        tried.append(1)
        raise FileNotFoundError

    with pytest.raises(FileNotFoundError):
        descriptors.spend(missing)
    assert tried == [1]
