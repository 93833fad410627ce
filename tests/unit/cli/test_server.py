"""What the command ``server`` says, and in which order."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from aeron_spark.cli.server import _StatusPrinter

SERVING = SimpleNamespace(public_key=bytes(32), addresses=["192.0.2.1:1:2", "192.0.2.1:3:4"], aeron_dir="/dev/shm/x")


def connection(number: int) -> SimpleNamespace:
    return SimpleNamespace(
        id=number, tag="", key=bytes(32), is_ipc=False, remote_address="192.0.2.9", remote_port=40_000
    )


def test_that_it_listens_is_said_before_who_came_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = _StatusPrinter(True)
    said._connection("connect", connection(7))
    said.listening(SERVING)
    said._connection("disconnect", connection(7))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["listening", "listening", "connect", "disconnect"]
    assert [line.get("address") for line in lines[:2]] == SERVING.addresses
    assert lines[2]["id"] == 7
