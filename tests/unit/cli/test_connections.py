"""``aeron-spark connections`` and ``bans``, over the admin socket of a server in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark.cli import output
from aeron_spark.cli.connections import row, streams_text
from aeron_spark.cli.main import main
from aeron_spark.protocol.keypair import public_text
from aeron_spark.server.operator import AdminSocket, OperatorService
from tests.unit.endpoint.endpoints import World, wait_for
from tests.unit.server.operated import KEYS, Operated

CONNECTOR = Path(__file__).resolve().parents[3] / "connector"
WRONG_COMMAND_LINE = 2


class Terminal:
    """Runs commands for the server at ``path``."""

    def __init__(self, operated: Operated, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.operated = operated
        self.path = path
        self._capsys = capsys

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Return the exit code, the output and the errors of a command."""
        self._capsys.readouterr()
        code = main([*arguments, "--streams-dir", str(self.path)])
        out, err = self._capsys.readouterr()
        return code, out, err

    def refused(self, *arguments: str) -> str:
        """Return the error of a command that ends with exit code 1."""
        code, out, err = self.run(*arguments)
        assert (code, out) == (1, "")
        return err


@pytest.fixture
def terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    world = World()
    operated = Operated(world)
    reported: list[BaseException] = []
    admin = AdminSocket(
        tmp_path / "admin.sock", OperatorService(operated.commands, reported.append).respond, reported.append
    )
    yield Terminal(operated, tmp_path, capsys)
    admin.close()
    world.close()
    assert reported == []


def test_the_list_and_the_description_of_a_connection(terminal: Terminal) -> None:
    assert terminal.run("connections", "list") == (0, "", "no connections\n")
    terminal.operated.client(tag="\\ tag")
    wait_for(lambda: terminal.operated.listed()[0]["round_trip_seconds"])
    code, out, _ = terminal.run("connections", "list")
    assert code == 0
    cells = out.removesuffix("\n").split("\t")
    assert (cells[1], cells[2], cells[3], cells[4]) == ("desk-7", "\\\\ tag", "192.0.2.7:4000", "connected")
    assert (cells[8], cells[10], cells[11]) == ("0", "orders", "0")
    (listed,) = (json.loads(line) for line in terminal.run("connections", "list", "--json")[1].splitlines())
    assert (listed["id"], listed["tag"], listed["streams"]) == (cells[0], "\\ tag", ["orders"])
    assert listed["since"].endswith("Z")
    described = json.loads(terminal.run("connections", "describe", cells[0], "--json")[1])
    assert described.keys() == listed.keys()
    text = terminal.run("connections", "describe", cells[0])[1]
    assert f"key\t{public_text(KEYS['desk-7'].public)}\n" in text
    assert "streams\torders\n" in text
    error = terminal.refused("connections", "describe", f"{cells[0][:7]}x")
    assert f"Did you mean '{cells[0]}'?" in error


def test_the_list_fits_a_terminal_of_80_columns(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: 14 columns in 80 characters were columns of one letter, and a connection took many lines."""
    terminal.operated.client(tag="tag")
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    lines = terminal.run("connections", "list")[1].splitlines()
    assert max(map(len, lines)) <= 80
    (row,) = [line for line in lines if "desk-7" in line]
    assert "192.0.2.7:4000" in row
    assert "connected" in row
    assert lines[0] == "connections (8 columns hidden: --wide shows all)"
    monkeypatch.setenv("COLUMNS", "300")
    lines = terminal.run("connections", "list")[1].splitlines()
    assert "bytes out" in "".join(lines)
    assert lines[0] == "connections"


def test_a_kick_prints_the_connections_and_ends_with_1_for_none(terminal: Terminal) -> None:
    terminal.operated.client()
    terminal.operated.client(KEYS["edge"], "edge")
    by_name = {one["name"]: one["id"] for one in terminal.operated.listed()}
    expected = f"would end 1 connection: {by_name['edge']} (edge)\n"
    assert terminal.run("connections", "kick", "--name", "edge", "--dry-run") == (0, expected, "")
    dry = json.loads(terminal.run("connections", "kick", "--tag", "*", "--dry-run", "--json")[1])
    assert (dry["count"], dry["dry_run"], dry["banned"], dry["until"]) == (2, True, [], None)
    assert terminal.run("connections", "kick", by_name["edge"], "--name", "desk-7") == (
        1, "", "no connection meets the conditions\n",
    )  # fmt: skip
    code, out, _ = terminal.run("connections", "kick", by_name["edge"], "--ban", "1h", "--reason", "leaked")
    assert code == 0
    ended, banned = out.splitlines()
    assert ended == f"ended 1 connection: {by_name['edge']} (edge)"
    assert banned.startswith("banned 1 key until 20")
    assert banned.endswith("Z: edge")
    wait_for(lambda: terminal.operated.names() == ["desk-7"])


def test_bans_are_added_listed_and_removed(terminal: Terminal) -> None:
    assert terminal.run("bans", "list") == (0, "", "no bans\n")
    added = "banned desk-7 until it is removed; ended 0 connections\n"
    assert terminal.run("bans", "add", "--key", "desk-7", "--reason", "two\nlines") == (0, added, "")
    code, out, _ = terminal.run("bans", "add", "--address", "192.0.2.0/24", "--for", "90min", "--json")
    assert code == 0
    ban = json.loads(out)
    assert (ban["address"], ban["count"], ban["reason"]) == ("192.0.2.0/24", 0, "")
    assert ban["until"].endswith("Z")
    key, network = (line.split("\t") for line in terminal.run("bans", "list")[1].splitlines())
    assert (key[0], key[1], key[3], key[4]) == ("desk-7", public_text(KEYS["desk-7"].public), "-", "two\\u000alines")
    assert (network[0], network[1], network[3]) == ("192.0.2.0/24", "-", ban["until"])
    listed = [json.loads(line) for line in terminal.run("bans", "list", "--json")[1].splitlines()]
    assert [one["name"] for one in listed] == ["desk-7", ""]
    assert terminal.run("bans", "remove", "--key", "desk-7")[:2] == (0, "removed the ban of desk-7\n")
    assert terminal.run("bans", "remove", "--address", "192.0.2.0/24")[0] == 0
    assert "no ban of key desk-7" in terminal.refused("bans", "remove", "--key", "desk-7")


def test_a_mistyped_name_is_an_error_with_the_most_similar_one(terminal: Terminal) -> None:
    expected = "aeron-spark: unknown key name 'desk7'. Did you mean 'desk-7'?\n"
    assert terminal.refused("connections", "kick", "--name", "desk7") == expected
    assert terminal.refused("bans", "add", "--key", "desk7") == expected


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("connections kick", "no connection is named"),
        ("connections kick --tag x --ban soon", "--ban is 'soon', expected a duration above zero"),
        ("connections kick --tag x --reason y", "--reason is the reason of --ban, which is absent"),
        ("connections kick --address 192.0.2.7/24", "has bits beyond its prefix length"),
        ("connections end", "Unknown command 'end'"),
        ("bans add", "a ban is of a key or of addresses"),
        ("bans add --key k --address ::1", "a ban is of a key or of addresses"),
        ("bans add --address example.org", "does not begin with an IP address"),
        ("bans add --key k --for 0s", "--for is '0s', expected a duration above zero"),
        ("bans remove", "a ban is of a key or of addresses"),
    ],
)
def test_a_wrong_command_line_is_refused_without_a_server(
    line: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == WRONG_COMMAND_LINE
    output = capsys.readouterr()
    assert output.out == ""
    assert problem in output.err


def test_a_command_without_a_server_says_how_to_name_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connections", "list", "--streams-dir", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert f"no server runs at the admin socket {tmp_path}/admin.sock" in error
    assert "--streams-dir" in error


def test_a_row_escapes_the_texts_of_a_peer_and_has_at_most_three_streams() -> None:
    assert streams_text(["a", "b\u202e", "c", "d", "e"]) == "a, b\\u202e, c and 2 more"
    assert streams_text([]) is None
    one = {
        "id": "0000000a", "name": "desk-7", "tag": "x\u2066\x1b[2J" + "y" * 200, "address": "2001:db8::1", "port": 7,
        "state": "paused", "since": 0.0, "idle_seconds": 1.25, "round_trip_seconds": None, "calls": 1,
        "waiting_bytes": 2, "unacknowledged_bytes": 3, "streams": [], "bulk_links": 4, "received_bytes": 5,
        "sent_bytes": 6,
    }  # fmt: skip
    cells = row(one)
    assert str(cells[2]).startswith("x\\u2066\\u001b[2Jyyy")
    assert len(str(cells[2])) <= 128
    assert cells[3:] == (
        "[2001:db8::1]:7", "paused", "1970-01-01T00:00:00.000Z", "1.2", None, 1, 5, None, 4, 5, 6,
    )  # fmt: skip


def test_the_commands_load_neither_the_options_nor_java_nor_cryptography() -> None:
    """They would take longer to load than the server to answer."""
    code = (
        "import sys, aeron_spark.cli.connections, aeron_spark.cli.bans; "
        "print([one for one in ('aeron_spark.options', 'jpype', 'cryptography', 'msgspec') if one in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(CONNECTOR)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
