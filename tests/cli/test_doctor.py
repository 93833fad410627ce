from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from aeron_spark import node
from aeron_spark.cli import doctor
from aeron_spark.cli.main import main
from aeron_spark.errors import SetupError
from tests.cli.conftest import run


def test_a_healthy_machine(own: Path) -> None:
    said = run("doctor", "--aeron-dir", str(own), "--json")
    verdicts = {line["subject"]: line["verdict"] for line in said.lines}
    assert said.code == 0, said.out
    assert set(verdicts) >= {"java", "jars", "shared memory", "disk", "aeron directory", "node folder", "node", "ports"}
    assert "broken" not in verdicts.values()
    table = run("doctor", "--aeron-dir", str(own))
    assert table.code == 0
    assert "Java 1" in table.out or "Java 2" in table.out
    assert not own.exists()


def test_what_is_broken_makes_it_fail_and_has_a_remedy(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_java() -> str:
        raise SetupError("no Java was found", remedy="Install one.")

    monkeypatch.setattr(doctor.jvm, "find_library", no_java)
    assert main(["doctor", "--aeron-dir", str(own), "--json"]) == 1
    broken = [line for line in map(json.loads, capsys.readouterr().out.splitlines()) if line["verdict"] == "broken"]
    assert broken == [{"subject": "java", "verdict": "broken", "what": "no Java was found", "remedy": "Install one."}]


def test_a_socket_that_gets_less_than_a_node_asks_for_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "granted_buffer", lambda which, wanted: min(wanted, 208 * 1024))
    receive, send = doctor._socket_buffers()
    assert (receive.verdict, receive.remedy) == ("warning", "sysctl -w net.core.rmem_max=2097152")
    assert "208.0 KiB of the 2.0 MiB" in receive.what
    assert (send.verdict, send.remedy) == ("ok", "")


def test_leftovers_of_a_dead_driver_are_found(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with node.ensure(own, archive=False) as handle:
        os.kill(handle.pid, signal.SIGKILL)
        os.waitpid(handle.pid, 0)
    found = [finding for finding in doctor.examine(node.local_node_paths(own)) if finding.subject == "node"]
    assert [(finding.verdict, finding.remedy) for finding in found] == [
        ("warning", "Nothing to do: the next start removes them.")
    ]
    monkeypatch.setattr("aeron_spark.node.liveness.DRIVER_TIMEOUT_S", 0.0)
    left = [finding for finding in doctor.examine(node.local_node_paths(own)) if finding.subject == "leftovers"]
    assert any(str(own) in finding.what and f"rm -r {own}" in finding.remedy for finding in left)


def test_a_running_node_is_looked_at_where_it_is(own: Path) -> None:
    with node.ensure(own):
        found = {finding.subject: finding for finding in doctor.examine(node.local_node_paths(own))}
    assert found["node"].what == f"running in {own}"
    assert f"free in {own}" in found["shared memory"].what


def test_a_file_in_the_way_is_broken(own: Path) -> None:
    own.write_text("")
    found = {finding.subject: finding for finding in doctor.examine(node.local_node_paths(own))}
    assert found["aeron directory"].verdict == "broken"
    own.unlink()
