"""Exit codes of commands that connect, and the options that all of them have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from aeron_spark.aeron import jvm
from aeron_spark.cli.main import cli, main
from aeron_spark.client import client
from aeron_spark.errors import AeronSparkError, ConnectError, OptionError, RefusedError, SetupError, WaitTimeout
from aeron_spark.streams.definition import unknown_stream

SERVER = "feeds.example:20121"


class FailingClient:
    """A client whose server responds to every request with an error."""

    def __init__(self, error: AeronSparkError) -> None:
        self._error = error

    @property
    def connection(self) -> Any:
        raise self._error

    def __getattr__(self, name: str) -> Any:
        def refuse(*arguments: object, **options: object) -> None:
            raise self._error

        return refuse


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent a JVM: the tests of this module need no media driver."""
    monkeypatch.setattr(jvm, "start", lambda *arguments: None)


def respond_with(monkeypatch: pytest.MonkeyPatch, error: AeronSparkError) -> list[tuple[str, dict[str, Any]]]:
    """Make every server respond with ``error``. Return a list of the connections: address and options."""
    connected: list[tuple[str, dict[str, Any]]] = []

    @contextmanager
    def connect(address: str, **options: Any) -> Iterator[FailingClient]:
        connected.append((address, options))
        yield FailingClient(error)

    monkeypatch.setattr(client, "connect", connect)
    return connected


STREAM_COMMANDS = [
    f"streams describe flihgts --server {SERVER}",
    f"streams purge flihgts --before 0 --yes --server {SERVER}",
    f"streams delete flihgts --yes --server {SERVER}",
    f"send --stream flihgts --server {SERVER}",
    f"receive --stream flihgts --server {SERVER}",
]


@pytest.mark.parametrize("line", STREAM_COMMANDS)
@pytest.mark.parametrize(
    "error",
    [
        unknown_stream("flihgts", ["flights"]),
        RefusedError("key edge may not read stream 'flihgts'", remedy="Ask the operator."),
        OptionError("stream 'flihgts' has no partition 7", remedy="It has 4, numbered from 0."),
    ],
    ids=["missing", "forbidden", "no such partition"],
)
def test_a_missing_and_a_forbidden_stream_both_end_with_1(
    line: str, error: AeronSparkError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: it was 2 for a missing stream, and 1 for a forbidden one."""
    connected = respond_with(monkeypatch, error)
    assert main(line.split()) == 1
    assert [address for address, _ in connected] == [SERVER]
    output = capsys.readouterr()
    assert output.err == f"aeron-spark: {error}\n"
    assert output.out == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OptionError("odd", remedy="Look."), 2),
        (ConnectError("no server responds", remedy="Look."), 1),
        (SetupError("no Java was found", remedy="Install one."), 1),
        (WaitTimeout("waited 3 s for a response", remedy="Look."), 1),
        (KeyboardInterrupt(), 130),
        (PermissionError(13, "Permission denied", "/folder/file"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_an_error_has_its_exit_code_and_no_traceback(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise error

    monkeypatch.setattr("aeron_spark.node.status", fail)
    assert main(["node", "status"]) == code
    output = capsys.readouterr()
    assert "Traceback" not in output.err
    assert output.err


def test_forgetting_an_unknown_server_ends_with_1(tmp_path: Path) -> None:
    assert main(["keys", "forget", SERVER, "--known-servers", str(tmp_path / "none")]) == 1


def test_declining_a_confirmation_ends_with_1_and_ctrl_c_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connected = respond_with(monkeypatch, OptionError("not reached"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    line = f"streams delete flights --server {SERVER}".split()
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt: "n")
    assert main(line) == 1
    assert "nothing was changed" in capsys.readouterr().err

    def interrupt(prompt: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("click.termui.visible_prompt_func", interrupt)
    assert main(line) == 130
    assert connected == []


CONNECTING = ["ping", "bench load", "send", "receive", *(f"streams {one}" for one in ("list", "describe", "create"))]
CONNECTING += ["streams purge", "streams delete"]


def find_command(words: str) -> click.Command:
    command: click.Command = cli
    for name in words.split():
        assert isinstance(command, click.Group)
        child = command.get_command(click.Context(command), name)
        assert child is not None
        command = child
    return command


@pytest.mark.parametrize("words", CONNECTING)
def test_every_command_that_connects_has_the_same_options(words: str) -> None:
    """Regression: it was ``ping --identity``, and ``--option identity=`` elsewhere."""
    flags = {flag for parameter in find_command(words).params for flag in parameter.opts}
    assert {"--server", "--identity", "--server-key", "--json", "--option"} <= flags


KEY = "aeron-spark:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"


@pytest.mark.parametrize(
    "line", ["ping", "send --stream flights", "receive --stream flights", "streams list", "streams describe flights"]
)
def test_the_options_of_a_connection_reach_the_connection(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connected = respond_with(monkeypatch, RefusedError("no"))
    given = f"--server {SERVER} --identity me.key --server-key {KEY} --option TAG=desk-7".split()
    assert main([*line.split(), *given]) == 1
    ((address, options),) = connected
    assert address == SERVER
    assert options["identity"] == "me.key"
    assert options["serverKey"] == KEY
    assert {name.lower(): value for name, value in options.items()}["tag"] == "desk-7"


@pytest.mark.parametrize(
    ("words", "completes"),
    [("aeron-spark str", ["streams"]), ("aeron-spark streams de", ["describe", "delete"]), ("aeron-spark keys", None)],
)
def test_a_shell_completes_commands(
    words: str, completes: list[str] | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_AERON_SPARK_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit):
        main([])
    found = [line.removeprefix("plain,") for line in capsys.readouterr().out.splitlines()]
    assert sorted(found) == sorted(completes or ["keys"])
