"""``aeron-spark echo`` in separate processes with a separate node: output, signals and exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aeron_spark import node
from aeron_spark.aeron import counters
from aeron_spark.transport.addresses import HostPort
from tests.cli.conftest import run as run_here
from tests.programs import Program, start_interpreter

TIMEOUT_S = 60.0  # for an operation of another process on a slow machine


def start_command(*arguments: str) -> Program:
    command = ("-W", "error", "-m", "aeron_spark", "echo", *arguments)
    return start_interpreter(*command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)


def run_in_process(*arguments: str) -> tuple[int, str, str]:
    """Run a command to its end in this process, which has a JVM already."""
    done = run_here("echo", *arguments)
    return done.code, done.out, done.err


def run_as_process(*arguments: str) -> tuple[int, str, str]:
    """Run a command to its end in a separate process, so that everything that it opened is closed."""
    process = start_command(*arguments)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def next_event(process: subprocess.Popen[str]) -> Any:
    """Return the next JSON line of a command. If the command has ended, fail with its standard error."""
    text = process.stdout.readline()
    return json.loads(text) if text else pytest.fail(process.stderr.read())


@pytest.fixture(scope="module")
def shared_aeron_dir(run_name: str) -> Iterator[Path]:
    """A node for the tests of this module."""
    aeron_dir = Path("/dev/shm") / f"{run_name}-echo"
    with node.ensure(aeron_dir, archive=False):
        yield aeron_dir
    node.stop(aeron_dir, force=True, timeout=30)


def start_server(listen: HostPort, aeron_dir: Path, *options: str) -> subprocess.Popen[str]:
    process = start_command("server", "--listen", str(listen), "--aeron-dir", str(aeron_dir), "--json", *options)
    assert next_event(process)["event"] == "listening"
    return process


def stop(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Stop a process with a signal; it has to end without an error."""
    process.send_signal(number)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, "")


@pytest.mark.full("five processes, each with a JVM; the tests below run the commands in one process")
def test_row_85_a_client_gets_echoes_from_a_server_process(shared_aeron_dir: Path, listen: HostPort) -> None:
    server = start_server(
        listen, shared_aeron_dir, "--duologue-ports", str(listen.port + 10), "--clients", "2", "--per-address", "1"
    )
    connect_options = ["client", "--connect", str(listen), "--aeron-dir", str(shared_aeron_dir)]
    code, out, err = run_as_process(*connect_options, "--count", "3", "--interval", "0.05", "--json")
    assert (code, err) == (0, "")
    events = [json.loads(text) for text in out.splitlines()]
    assert [one["event"] for one in events] == ["connected", "echo", "echo", "echo"]
    assert len({one["text"] for one in events[1:]}) == 3
    code, out, err = run_as_process(*connect_options, "--send", "é€", "--send", "two\nlines", "--interval", "0")
    assert (code, err) == (0, "")
    assert "é€ in " in out
    endless_client = start_command(*connect_options, "--json")
    assert next_event(endless_client)["event"] == "connected"
    code, out, err = run_as_process(*connect_options, "--count", "1")
    assert (code, out) == (1, "")
    assert "refused the connection: too many connections for IP address" in err
    stop(endless_client, signal.SIGINT)
    stop(server, signal.SIGINT)


def test_row_82_a_client_gets_echoes_from_an_echo_1_process(shared_aeron_dir: Path, listen: HostPort) -> None:
    server = start_server(listen, shared_aeron_dir, "--protocol", "1")
    connect_options = ["client", "--protocol", "1", "--connect", str(listen), "--aeron-dir", str(shared_aeron_dir)]
    code, out, err = run_in_process(*connect_options, "--count", "5", "--interval", "0.05", "--json")
    assert (code, err) == (0, "")
    texts = [json.loads(text).get("text") for text in out.splitlines()][1:]
    assert len(texts) == 5
    assert all(0 <= int(text) < 2**32 for text in texts)
    code, out, _ = run_in_process(*connect_options, "--own", f"127.0.0.1:{listen.port + 5}", "--send", "here")
    assert (code, out.splitlines()[1].split(" in ")[0]) == (0, "here")
    stop(server, signal.SIGTERM)


def test_row_96_a_client_without_a_server_names_the_failed_step(shared_aeron_dir: Path, listen: HostPort) -> None:
    connect_options = ["--connect", str(listen), "--aeron-dir", str(shared_aeron_dir), "--timeout", "0.5"]
    code, out, err = run_in_process("client", *connect_options)
    assert (code, out) == (1, "")
    assert "step 'initial subscription' was not done within 0.5 s" in err
    code, out, err = run_in_process("client", "--protocol", "1", *connect_options)
    assert (code, out) == (1, "")
    assert "step 'publication' was not done within 0.5 s" in err


@pytest.mark.full("a node and two programs; row 85 ends both sides by a signal, too")
def test_row_100_sigterm_ends_a_server_and_its_channels(own_dir: Path, listen: HostPort) -> None:
    node.ensure(own_dir, archive=False).close()
    server = start_server(listen, own_dir, "--duologue-ports", str(listen.port + 10))
    client = start_command("client", "--connect", str(listen), "--aeron-dir", str(own_dir), "--json")
    assert [next_event(client)["event"] for _ in range(2)] == ["connected", "echo"]
    assert [next_event(server)["event"] for _ in range(2)] == ["opened", "joined"]
    assert any(str(listen.port) in one.label for one in counters.read_counters(str(own_dir)))
    stop(server, signal.SIGTERM)
    _, err = client.communicate(timeout=TIMEOUT_S)
    assert client.returncode == 1
    assert "was closed" in err
    end = time.monotonic() + 30
    while open_channels := [one.label for one in counters.read_counters(str(own_dir)) if "127.0.0.1" in one.label]:
        assert time.monotonic() < end, open_channels
        time.sleep(0.1)
    assert node.stop(own_dir, timeout=10)  # no program uses it any more
    assert not own_dir.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["server", "--listen", "127.0.0.1:9000"], "--duologue-ports is required"),
        (["server", "--listen", "127.0.0.1"], "is not host:port"),
        (["server", "--listen", "127.0.0.1:0", "--duologue-ports", "9010"], "has port 0, expected 1 to 65535"),
        (["server", "--listen", "[::1]:9000", "--duologue-ports", "9000"], "is in the range of the duologues"),
        (
            ["server", "--listen", "h:65535", "--duologue-ports", "9"],
            "--control is 65536, expected a port from 1 to 65535",
        ),
        (["server", "--listen", "h:1", "--duologue-ports", "65530"], "from 65530 would be 65545"),
        (["server", "--listen", "h:1", "--protocol", "1", "--control", "2"], "--control is for Echo 2.0"),
        (["client", "--connect", "h:1", "--own", "h:2"], "--own is for Echo 1.0"),
        (["client", "--connect", "h:1", "--protocol", "3"], "'3' is not one of '1', '2'"),
        (["client", "--conect", "h:1"], "No such option '--conect'"),
        (["client"], "Missing option '--connect'"),
        (["sever"], "Unknown command 'sever'. Did you mean 'server'?"),
    ],
)
def test_a_wrong_command_line_is_refused_at_once(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from aeron_spark.cli import main as entry

    monkeypatch.setattr(entry, "COMMANDS", {**entry.COMMANDS, "echo": entry.Command("echo", "echo", "")})
    assert entry.main(["echo", *arguments]) == 2
    assert message in capsys.readouterr().err
