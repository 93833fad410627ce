"""Programs that end without closing their clients and servers."""

from __future__ import annotations

import subprocess
from typing import Final

import pytest

from aeron_spark.transport.api import ServerAddress
from aeron_spark.waiting import wait_for
from tests.aeron.secure.endpoints import TIMEOUT_S, RecordedEvents, World
from tests.programs import Program, start_interpreter

CLIENTS: Final = 8

OPEN_CLIENTS = """
import sys
import aeron_spark
from aeron_spark.keys.stores import MemoryPeerStore
address, aeron_dir, count, last_line = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
clients = [aeron_spark.connect(address, store=MemoryPeerStore(), aeron_dir=aeron_dir) for _ in range(count)]
for client in clients:
    client.send("the last message")
exec(last_line)
"""

OPEN_SERVER = """
import sys
import threading
import aeron_spark
from aeron_spark.keys.stores import MemoryPeerStore
server = aeron_spark.Server(sys.argv[1], store=MemoryPeerStore(), aeron_dir=sys.argv[2], allow_any_key=True)
connected = threading.Event()
server.on_connect(lambda connection: connected.set())
server.start()
assert connected.wait(60)
"""


STARTING_JVM = """
import sys
import time
import aeron_spark
from aeron_spark.aeron import jvm
from aeron_spark.keys.stores import MemoryPeerStore
client = aeron_spark.connect("127.0.0.1:9", store=MemoryPeerStore(), aeron_dir=sys.argv[1], wait=False)
while not jvm._is_starting:
    time.sleep(0.001)
"""


def start_program(text: str, *arguments: str) -> Program:
    return start_interpreter("-c", text, *arguments, stdin=None, stdout=None, stderr=subprocess.PIPE)


def place_of(address: ServerAddress) -> str:
    return f"{address.host}:{address.data_port}:{address.control_port}"


@pytest.mark.parametrize(
    ("last_line", "code", "error"),
    [("pass", 0, ""), ("raise ValueError('of the program')", 1, "ValueError: of the program")],
)
def test_a_program_that_ends_closes_its_clients_and_sends_their_messages(
    world: World, last_line: str, code: int, error: str
) -> None:
    """Regression: it printed hundreds of errors, or never ended, and its last messages were lost."""
    address = world.free_address()
    server = world.server(address, echo=False)
    messages: list[object] = []
    server.on_message(str, lambda _, message: messages.append(message))
    recorded = RecordedEvents(server)
    arguments = (place_of(address), world.dialling.aeron_dir, str(CLIENTS), last_line)
    with start_program(OPEN_CLIENTS, *arguments) as program:
        try:
            _, printed = program.communicate(timeout=TIMEOUT_S)
        finally:
            program.kill()
    wait_for(lambda: recorded.count("disconnect") == CLIENTS, 5.0, "the CLOSE of each client")  # less than the expiry
    assert messages == ["the last message"] * CLIENTS
    errors = [line for line in printed.splitlines() if not line.startswith((" ", "Traceback"))]
    assert (program.returncode, "\n".join(errors)) == (code, error)


def test_a_program_that_ends_while_its_client_opens_the_transport_ends(world: World) -> None:
    """Java must not start, or be called, while the interpreter ends: the process would never end."""
    with start_program(STARTING_JVM, world.dialling.aeron_dir) as program:
        try:
            _, printed = program.communicate(timeout=TIMEOUT_S)
        finally:
            program.kill()
    assert (program.returncode, printed) == (0, "")


def test_a_program_that_ends_closes_its_server(world: World) -> None:
    address = world.free_address()
    client = world.client(address)
    recorded = RecordedEvents(client)
    with start_program(OPEN_SERVER, place_of(address), world.serving.aeron_dir) as program:
        try:
            client.connect(TIMEOUT_S)
            _, printed = program.communicate(timeout=TIMEOUT_S)
        finally:
            program.kill()
    assert (program.returncode, printed) == (0, "")
    wait_for(lambda: recorded.count("disconnect") == 1, 5.0, "the server's CLOSE")  # less than the expiry
