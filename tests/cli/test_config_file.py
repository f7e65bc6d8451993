"""kraftlib.cli.config_file: both forms of a configuration, by their ending."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.cli import main
from kraftlib.cli.config_file import read_config


def test_the_ending_says_which_form_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.toml").write_text("node_id = 7")
    (tmp_path / "server.properties").write_text(
        "process.roles=controller\nnode.id=7\ncontroller.listener.names=C\nlisteners=C://127.0.0.1:0\n"
        "controller.quorum.voters=7@127.0.0.1:9093\nnum.io.threads=8\n"
    )

    assert read_config(str(tmp_path / "r.toml")).node_id == 7
    assert capsys.readouterr().err == ""
    assert read_config(str(tmp_path / "server.properties")).listener_name == "C"
    assert "server.properties: num.io.threads: threads and sockets" in capsys.readouterr().err


def test_a_directory_is_formatted_for_what_kafkas_file_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=controller\nnode.id=7\ncontroller.listener.names=C\nlisteners=C://127.0.0.1:9093\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs={tmp_path}/data\n"
    )

    assert main(["format", "-c", str(path), "--standalone", "--cluster-id", "c"]) == 0
    assert "node.id=7" in (tmp_path / "data" / "meta.properties").read_text()
    assert main(["format", "-c", str(tmp_path / "absent.properties"), "--cluster-id", "c"]) == 1
    assert "cannot read the configuration" in capsys.readouterr().err
