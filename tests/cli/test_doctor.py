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
from aeron_spark.node import paths
from tests.cli.conftest import run


def test_a_machine_without_problems_has_no_broken_verdict(own_dir: Path) -> None:
    result = run("doctor", "--aeron-dir", str(own_dir), "--json")
    verdicts = {line["subject"]: line["verdict"] for line in result.lines}
    assert result.code == 0, result.out
    assert set(verdicts) >= {"java", "jars", "shared memory", "disk", "aeron directory", "node folder", "node", "ports"}
    assert "broken" not in verdicts.values()
    table = run("doctor", "--aeron-dir", str(own_dir))
    assert table.code == 0
    assert "Java 1" in table.out or "Java 2" in table.out
    assert not own_dir.exists()


def test_a_broken_verdict_has_a_remedy_and_exit_code_1(
    own_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_java() -> str:
        raise SetupError("no Java was found", remedy="Install one.")

    monkeypatch.setattr(doctor.jvm, "find_library", no_java)
    assert main(["doctor", "--aeron-dir", str(own_dir), "--json"]) == 1
    broken = [line for line in map(json.loads, capsys.readouterr().out.splitlines()) if line["verdict"] == "broken"]
    assert broken == [{"subject": "java", "verdict": "broken", "what": "no Java was found", "remedy": "Install one."}]


def test_a_socket_buffer_below_the_requested_size_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "granted_buffer", lambda which, wanted: min(wanted, 208 * 1024))
    receive, send = doctor._socket_buffers()
    assert (receive.verdict, receive.remedy) == ("warning", "sysctl -w net.core.rmem_max=3145728")
    assert "208.0 KiB of the 3.0 MiB" in receive.what
    assert receive.what.endswith("each sender may be 69.3 KiB ahead")
    assert (send.verdict, send.remedy) == ("ok", "")


def test_the_packet_size_of_each_network_is_shown() -> None:
    (packets,) = doctor._packets()
    assert packets.verdict == "ok"
    assert "16,384 bytes on lo" in packets.what


def test_a_machine_whose_packets_may_be_cut_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "may_be_fragmented", lambda: True)
    _, warning = doctor._packets()
    assert (warning.verdict, warning.remedy) == ("warning", "sysctl -w net.ipv4.ip_no_pmtu_disc=0")
    assert "1,184 bytes" in warning.what


def test_files_of_an_ended_driver_are_found(own_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with node.ensure(own_dir, archive=False) as handle:
        os.kill(handle.pid, signal.SIGKILL)
        os.waitpid(handle.pid, 0)
    found = [finding for finding in doctor.examine(node.local_node_paths(own_dir)) if finding.subject == "node"]
    assert [(finding.verdict, finding.remedy) for finding in found] == [
        ("warning", "Nothing to do: the next start removes them.")
    ]
    monkeypatch.setattr("aeron_spark.aeron.counters.DRIVER_TIMEOUT_S", 0.0)
    leftovers = [
        finding for finding in doctor.examine(node.local_node_paths(own_dir)) if finding.subject == "leftovers"
    ]
    assert any(str(own_dir) in finding.what and f"rm -r {own_dir}" in finding.remedy for finding in leftovers)


def test_the_directory_of_a_running_node_is_checked(own_dir: Path) -> None:
    with node.ensure(own_dir):
        found = {finding.subject: finding for finding in doctor.examine(node.local_node_paths(own_dir))}
    assert found["node"].what == f"running in {own_dir}"
    assert f"free in {own_dir}" in found["shared memory"].what


def test_a_file_at_the_path_of_the_directory_is_broken(own_dir: Path) -> None:
    own_dir.write_text("")
    found = {finding.subject: finding for finding in doctor.examine(node.local_node_paths(own_dir))}
    assert found["aeron directory"].verdict == "broken"
    own_dir.unlink()


def test_a_full_shared_memory_is_found(own_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def space_of(path: Path) -> paths.Space:
        return paths.Space(str(path), 1_000_000 if "/dev/shm" in str(path) else 10**12, 10**12)

    monkeypatch.setattr(paths, "space_of", space_of)
    found = {one.subject: one for one in doctor.examine(node.local_node_paths(own_dir))}["shared memory"]
    assert found.verdict == "broken"
    assert "/dev/shm" in found.what
    assert found.remedy


def test_the_file_of_a_server_is_checked(own_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("maxConnection = 5\n")
    result = run("doctor", "--aeron-dir", str(own_dir), "--config", str(file), "--json")
    (found,) = [line for line in result.lines if line["subject"] == "server options"]
    assert (result.code, found["verdict"]) == (1, "broken")
    assert found["what"] == "unknown option 'maxConnection'"
    assert "maxConnections" in found["remedy"]
