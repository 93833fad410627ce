"""The command ``server``: the names of its other commands."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NoReturn

import click
import pytest

from aeron_spark.cli.main import main
from aeron_spark.cli.server import server
from aeron_spark.cli.server_run import COMMAND_NAMES


@pytest.mark.parametrize("line", ["server --allow-any-key status", "server sttus"])
def test_the_name_of_a_command_is_never_an_address(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert "Did you mean 'aeron-spark server " in capsys.readouterr().err


def test_each_command_of_the_server_is_refused_as_an_address() -> None:
    assert set(COMMAND_NAMES) == set(server.list_commands(click.Context(server)))


def test_a_line_without_a_command_runs_a_server_and_its_errors_name_the_command_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["server", "0.0.0.0:1", "--nonsense"]) == 2
    assert "Usage: aeron-spark server [OPTIONS] [HOST:PORT]" in capsys.readouterr().err
    for line in ("server --help", "server 0.0.0.0:1 --help"):
        assert main(line.split()) == 0
        help_text = capsys.readouterr().out
        assert help_text.startswith("Usage: aeron-spark server [OPTIONS] [HOST:PORT]")
        assert "--max-connections" in help_text


@pytest.mark.parametrize("name", ["address", "store", "connection_class"])
def test_a_parameter_of_the_python_class_is_no_option_of_the_file(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object, **options: object) -> NoReturn:
        pytest.fail("the server took the options")

    monkeypatch.setattr("aeron_spark.server.command_server.CommandServer", started)
    config = tmp_path / "server.toml"
    config.write_text(f'{name} = "127.0.0.1:20121"\nallowAnyKey = true\n')
    for line in (f"server 127.0.0.1:20121 --config {config}", f"server check --config {config}"):
        assert main(line.split()) == 2
        captured = capsys.readouterr()
        assert f"unknown option '{name}'" in captured.out + captured.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_before_the_server_starts_ends_the_command(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def signalled(*_: object, **options: object) -> NoReturn:
        os.kill(os.getpid(), number)
        pytest.fail("the signal did not end the start")

    monkeypatch.setattr("aeron_spark.server.command_server.CommandServer", signalled)
    assert main(["server", "127.0.0.1:20121", "--allow-any-key"]) == code
