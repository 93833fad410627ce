"""The classes for asyncio have the methods of those without, with the same arguments and defaults."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from aeron_spark import aio
from aeron_spark.client.client import Client, connect
from aeron_spark.stream_client.buffered_writer import BufferedWriter
from aeron_spark.stream_client.reader import StreamReader
from aeron_spark.stream_client.writer import StreamWriter

# Methods without a counterpart, with the reason.
LEFT_OUT: dict[type, set[str]] = {
    Client: {
        *("to", "begin_connecting"),  # aio.connect makes a client, and opening it connects
        *("connection", "connected", "bulk_link", "offer"),  # calls of a connection wait
        *("factory", "expose", "register_error", "on_init", "on_resume", "tampered", "closed", "wait_closed"),
    },
    StreamReader: {"schema", "payload", "partitions"},
    StreamWriter: set(),
    BufferedWriter: set(),
}
PAIRS: list[tuple[type, type]] = [
    (Client, aio.Client), (StreamReader, aio.StreamReader), (StreamWriter, aio.StreamWriter),
    (BufferedWriter, aio.BufferedWriter),
]  # fmt: skip


def public_names(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def arguments(call: Any) -> list[tuple[str, object, object]]:
    found = inspect.signature(call).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


@pytest.mark.parametrize(("without", "with_asyncio"), PAIRS)
def test_each_method_has_a_counterpart(without: type, with_asyncio: type) -> None:
    missing = public_names(without) - public_names(with_asyncio)
    assert missing == LEFT_OUT[without] & public_names(without)


@pytest.mark.parametrize(
    ("without", "with_asyncio", "name"),
    [
        (without, with_asyncio, name)
        for without, with_asyncio in PAIRS
        for name in sorted(public_names(without) & public_names(with_asyncio))
        if inspect.isfunction(getattr(without, name)) and name != "writer"
    ],
)
def test_a_method_has_the_same_arguments(without: type, with_asyncio: type, name: str) -> None:
    assert arguments(getattr(with_asyncio, name)) == arguments(getattr(without, name))


def test_connect_has_the_same_arguments() -> None:
    assert arguments(aio.connect) == arguments(connect)
