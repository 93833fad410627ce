"""Commands that need no JVM start none, and need no Java."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import jpype
import pytest

from aeron_spark.aeron import counters, jvm
from aeron_spark.cli.main import COMMANDS, cli, main
from aeron_spark.errors import ConnectError
from aeron_spark.protocol.keypair import public_text
from tests.unit.cli import cnc_file

CONNECTOR = Path(__file__).resolve().parents[3] / "connector"
KEY = public_text(bytes(range(32)))


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that starts a JVM, even if another test has started one in this process."""

    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("a JVM was started")

    monkeypatch.setattr(jvm, "start", refuse)
    monkeypatch.setattr(jpype, "startJVM", refuse)


@pytest.fixture(autouse=True)
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a driver that has ended, with a counter, a stream, an error and a loss."""
    folder = tmp_path / "aeron"
    meta = [
        cnc_file.counter(0, "Bytes sent"),
        cnc_file.counter(counters.PUBLISHER_POSITION, "pub-pos", cnc_file.stream_key(5, -7, 1001, "aeron:ipc")),
        cnc_file.counter(9, "freed", state=-1),
        cnc_file.counter(counters.SUBSCRIBER_POSITION, "sub-pos", cnc_file.stream_key(6, -7, 1001, "aeron:ipc")),
    ]
    values = [(4096, 0, 0), (960, 5, 2), (1, 0, 0), (160, 6, 3)]
    log = cnc_file.error(1, 60_000, 61_000, "first\n\tat a line") + cnc_file.error(2, 60_000, 90_000, "second")
    cnc_file.write_driver(folder, meta, values, log)
    cnc_file.write_losses(
        folder,
        (3, 1408, 60_000, 61_000, -7, 9, "aeron:udp?endpoint=localhost:40", "127.0.0.1:7"),
        (1, 9000, 60_000, 60_000, 8, 10, "aeron:ipc", "x"),
    )
    monkeypatch.setenv("AERON_SPARK_AERON_DIR", str(folder))
    monkeypatch.setenv("AERON_SPARK_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("AERON_SPARK_DATA_HOME", str(tmp_path / "data"))
    return folder


@pytest.mark.parametrize(
    "line",
    [
        "--version",
        "keys new",
        f"keys trust feeds.example:20121 {KEY}",
        "node status",
        "node stop",
        "stat",
        "errors",
        "loss",
        "backlog",
        "top --count 1 --every 0.1",
        "doctor",
    ],
)
def test_a_command_that_needs_no_jvm_starts_none(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = line.split()
    assert main(arguments) == 0, capsys.readouterr().err
    assert capsys.readouterr().out
    if arguments != ["--version"]:
        assert main([*arguments, "--json", *(["--force"] if arguments == ["keys", "new"] else [])]) == 0
        assert all(isinstance(json.loads(one), dict) for one in capsys.readouterr().out.splitlines())


def test_no_keys_command_starts_a_jvm(capsys: pytest.CaptureFixture[str]) -> None:
    lines = "keys new", "keys show", "keys passphrase --remove", f"keys trust a:1 {KEY}", "keys list", "keys forget a:1"
    for line in lines:
        assert main(line.split()) == 0, capsys.readouterr().err
        assert capsys.readouterr().out


def every_command(command: click.Command, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [words]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            found += every_command(child, (*words, name))
    return found


@pytest.mark.parametrize("words", every_command(cli), ids=" ".join)
def test_no_help_starts_a_jvm(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--help"]) == 0
    assert f"Usage: {' '.join(('aeron-spark', *words))}" in capsys.readouterr().out


WRONG = [
    "recordings stop",
    "recordings stop 3 --channel aeron:ipc --stream-id 1",
    "recordings stop --channel aeron:ipc",
    "recordings stop three",
    "recordings delete",
    "recordings delete 3",
    "recordings delete 3 --yes --channel aeron:ipc",
    "recordings list --option archvie=x",
    "server --config no.such.file",
    "ping",
    "ping feeds.example:20121 --server feeds.example:20121",
    "ping feeds.example",
    "ping feeds.example:20121 --connect-timeout soon",
    "bench load --server feeds.example:20121 --tag x --option tag=y",
    "echo client --connect here",
]


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_line_is_refused_before_a_jvm_starts(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is one line with its remedy; standard output is empty and the exit code is 2."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert main(line.split()) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert len(output.err.strip().splitlines()) == 1 or output.err.startswith("Usage: ")
    assert "Traceback" not in output.err


@pytest.mark.slow
def test_importing_the_commands_loads_neither_jpype_nor_arrow_nor_rich() -> None:
    modules = ", ".join(f"aeron_spark.cli.{name}" for name in sorted({one.module for one in COMMANDS.values()}))
    code = f"import sys, {modules}; print(sorted({{'jpype', 'pyarrow', 'pyspark', 'rich'}} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(CONNECTOR)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_files_of_an_ended_driver_are_read_without_a_jvm(driver: Path) -> None:
    found = counters.read_driver(str(driver))
    assert (found.pid, found.started, found.cnc_version, found.alive) == (77, 60.0, "0.2.0", False)
    (sent, published, subscribed) = counters.read_counters(str(driver))
    assert (sent.id, sent.label, sent.value) == (0, "Bytes sent", 4096)
    assert (published.id, published.registration_id, published.owner_id) == (1, 5, 2)
    assert subscribed.id == 3
    (backlog,) = counters.read_backlog(str(driver))
    assert (backlog.channel, backlog.stream_id, backlog.session_id, backlog.behind) == ("aeron:ipc", 1001, -7, 800)
    second, first = counters.read_errors(str(driver))
    assert (first.text, first.observations, first.first, first.last) == ("first\n\tat a line", 1, 60.0, 61.0)
    assert (second.text, second.observations, second.last) == ("second", 2, 90.0)
    largest, other = counters.read_losses(str(driver))
    assert (largest.bytes, largest.channel, largest.source) == (9000, "aeron:ipc", "x")
    assert (other.session_id, other.stream_id, other.channel) == (-7, 9, "aeron:udp?endpoint=localhost:40")
    assert other.source == "127.0.0.1:7"


def damaged(file: bytearray, damage: str) -> bytes:
    if damage == "empty":
        return b""
    if damage == "cut":
        return bytes(file[:-1])
    struct.pack_into("<i", file, 0, 0 if damage == "starting" else 1 << 16)
    return bytes(file)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ("empty", "can be read (the file is empty)"),
        ("cut", "bytes, expected"),
        ("starting", "is still starting"),
        ("newer", "of version 1.0.0"),
    ],
)
def test_a_damaged_file_is_a_connect_error_with_a_remedy(driver: Path, damage: str, text: str) -> None:
    path = driver / counters.CNC_FILE
    path.write_bytes(damaged(bytearray(path.read_bytes()), damage))
    readers: list[Any] = [counters.read_driver, counters.read_counters, counters.read_errors, counters.read_losses]
    for read in readers:
        with pytest.raises(ConnectError) as raised:
            read(str(driver))
        assert text in str(raised.value)
        assert raised.value.remedy
