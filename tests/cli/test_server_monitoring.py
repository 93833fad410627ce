"""Runs a server process: its log in both formats on standard error, and a scrape after a commit."""

from __future__ import annotations

import json
import re
import socket
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from aeron_spark.server.event_table import EVENTS
from aeron_spark.server.metrics import METRICS, PREFIX, PROCESS_METRICS
from tests.cli.conftest import pipe, run
from tests.cli.running_servers import home_of, running_server
from tests.ports import free_ports

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARNING|ERROR) ([a-z_]+) ?(.*)")


def test_a_scrape_after_a_commit_has_the_metrics_of_the_table(
    tmp_path: Path, shared: Path, address: str, client: dict[str, str]
) -> None:
    port = free_ports()[0]
    with running_server(tmp_path / "server", shared, address, "--http", f":{port}") as server:
        server.wait("listening")
        created = run("streams", "create", "prices", "--server", address, **client)
        assert created.code == 0, created.err
        sent = pipe(b"one\ntwo\n", "send", "--server", address, "--stream", "prices", **client)
        assert sent.code == 0, sent.err
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
            text = response.read().decode()
        with ExitStack() as stack:
            for _ in range(200):
                slow = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                slow.sendall(b"GET /met")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as response:
                assert response.read() == b"ok\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60) as response:
            assert json.loads(response.read()) == []
        types = dict(re.findall(r"# TYPE (\S+) (\S+)", text))
        expected = {PREFIX + one.name: one.type for one in METRICS.values()}
        assert types == expected | {name: kind for name, kind, _ in PROCESS_METRICS}
        samples = dict(re.findall(r"^(\S+) (\S+)$", text, re.MULTILINE))
        for name, least in {
            'stream_committed_rows_total{stream="prices"}': 2, 'stream_bytes{stream="prices"}': 1,
            'stream_disk_bytes{stream="prices"}': 1, 'streams{state="ok"}': 1, "ready": 1, "driver_up": 1,
            'handshakes_total{result="accepted"}': 2, 'calls_total{result="ok",service="streams"}': 3,
            'commit_duration_seconds_count{phase="total"}': 1, "handshake_duration_seconds_count": 2,
            'received_bytes_total{kind="message"}': 1, 'received_bytes_total{kind="bulk"}': 1,
            "shm_free_bytes": 1, 'disk_free_bytes{volume="store"}': 1, "archive_recordings_active": 1,
            "event_loop_turn_seconds_count": 1,
        }.items():  # fmt: skip
            assert float(samples[PREFIX + name]) >= least, (name, samples[PREFIX + name])
        used = run("server", "--allow-any-key", f"127.0.0.1:{free_ports()[0]}", "--http", f":{port}",
                   "--streams-dir", str(tmp_path / "other"), **server.home)  # fmt: skip
        assert used.code == 3
        assert f"cannot listen on 127.0.0.1:{port}: the address is in use. Stop the program that has it" in used.err
        assert server.stop() == 0
    names = [event["event"] for event in server.events]
    assert set(names) <= set(EVENTS)
    assert "stream_created" in names
    assert server.errors == []


def test_the_log_as_text_has_one_line_for_each_event_and_stdout_only_the_line_listening(
    tmp_path: Path, shared: Path, address: str, client: dict[str, str]
) -> None:
    with running_server(tmp_path / "server", shared, address, "--log-format", "text") as server:
        server.wait("listening")
        assert run("ping", address, "-n", "1", "--tag", "desk 7", "--ipc", "never", **client).code == 0
        refused = run("streams", "delete", "no-such", "--yes", "--server", address, **client)
        assert refused.code == 1
        assert server.stop() == 0
    found = [LINE.fullmatch(line.rstrip("\n")) for line in server.errors]
    assert all(found), server.errors
    lines = {match[2]: match[3] for match in found if match is not None}
    assert 'tag="desk 7"' in str([match[3] for match in found if match is not None and match[2] == "connected"])
    assert "reason=closed-by-client" in lines["disconnected"]
    assert re.search(r'call=[0-9a-f]{8}-\d+ .*method="\w+Stream"', lines["call_failed"])
    assert [event["address"] for event in server.printed] == [f"{address}:{int(address.split(':')[1]) + 1}", "ipc:"]


def test_http_without_the_package_is_a_wrong_option(
    tmp_path: Path, shared: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    environ = home_of(tmp_path, shared)
    refused = run("server", "--allow-any-key", address, "--http", ":9464", **environ)
    assert refused.code == 2
    assert "pip install 'aeron-spark[server]'" in refused.err
