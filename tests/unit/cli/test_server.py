"""The lines that the command ``server`` prints, and their order."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from aeron_spark.cli.server import _StatusPrinter

SERVER = SimpleNamespace(public_key=bytes(32), addresses=["192.0.2.1:1:2", "192.0.2.1:3:4"], aeron_dir="/dev/shm/x")


def connection(number: int) -> SimpleNamespace:
    return SimpleNamespace(
        id=number, tag="", key=bytes(32), is_ipc=False, remote_address="192.0.2.9", remote_port=40_000
    )


def test_the_line_listening_precedes_connections_that_came_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    printer = _StatusPrinter(True)
    printer._on_connection("connect", connection(7))
    printer.print_listening(SERVER)
    printer._on_connection("disconnect", connection(7))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["listening", "listening", "connect", "disconnect"]
    assert [line.get("address") for line in lines[:2]] == SERVER.addresses
    assert lines[2]["id"] == 7
