"""Each request of the table is sent by the client, and each operation of a program is also a command."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from aeron_spark import aio
from aeron_spark.client.client import Client
from aeron_spark.stream_client.operations import AwaitedStreamOperations, StreamOperations
from aeron_spark.wire.stream_requests import OPERATIONS

PACKAGE: Final = Path(__file__).resolve().parents[3] / "connector" / "aeron_spark"
METHODS: Final = sorted(name for name in vars(StreamOperations) if not name.startswith("_"))


def text_of(*modules: str) -> str:
    return "\n".join((PACKAGE / module).read_text(encoding="utf-8") for module in modules)


def test_the_modules_of_the_client_send_each_request() -> None:
    text = text_of(*(f"stream_client/{path.name}" for path in (PACKAGE / "stream_client").glob("*.py")))
    assert [kind.__name__ for kind in OPERATIONS if not re.search(rf"\b{kind.__name__}\(", text)] == []


@pytest.mark.parametrize("name", METHODS)
def test_both_clients_have_an_operation_with_its_documentation(name: str) -> None:
    operation, awaited = getattr(StreamOperations, name), getattr(AwaitedStreamOperations, name)
    assert getattr(Client, name) is operation
    assert getattr(aio.Client, name) is awaited
    assert operation.__doc__ == awaited.__doc__ != ""


def test_each_operation_is_a_command() -> None:
    text = text_of("cli/streams.py", "client/named_streams.py")
    assert [name for name in METHODS if f"client.{name}(" not in text] == []
