"""What is meant for one client reaches that client alone, however many there are."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from tests.net.programs import Program, Programs, eventually

DRIVERS = 4
MESSAGES, SIZE = 10, 20_000
OWN_BYTES = MESSAGES * SIZE
RATE = 100  # messages a second to all of them
MOST = 1.1  # times its own bytes
REST = 600  # bytes a second of a client that says nothing: heartbeats, status messages, pings; nearly twice as many


# Where two cores have no time left, packets are lost and sent again, which is not what this is about: with many clients
# it is their handshakes that take the time.
@pytest.mark.full("ten JVMs, five of them drivers")
@pytest.mark.parametrize(
    "count", [20, pytest.param(40, marks=pytest.mark.soak), pytest.param(200, marks=pytest.mark.soak)]
)
def test_each_of_many_clients_receives_less_than_11_tenths_of_its_own_bytes(programs: Programs, count: int) -> None:
    serving = programs.driver(programs.site.server)
    drivers = [programs.driver(programs.site.clients[index % 2]) for index in range(DRIVERS)]
    server = programs.server(serving)
    share = count // DRIVERS
    clients = [
        programs.clients(driver, *(f"client-{index}-{number}" for number in range(share)), idle="sleeping")
        for index, driver in enumerate(drivers)
    ]
    for program in clients:
        program.tell("connect", timeout=60)
    for program in clients:
        program.answer(120)
    for driver in drivers:  # what is still sent again of so many handshakes is not meant
        eventually(partial(_in_a_second, driver), lambda received: received < share * REST)
    before = [driver.ask("counters")["received_bytes"] for driver in drivers]
    assert server.ask("send_to_all", count=MESSAGES, size=SIZE, rate=RATE, timeout=60)["to"] == count
    for program in clients:
        got = eventually(
            partial(_received, program),
            lambda got: len(got) == share and all(one["count"] == MESSAGES for one in got.values()),
        )
        wanted = {"count": MESSAGES, "bytes": OWN_BYTES, "wrong": []}
        assert got == dict.fromkeys(program.options["tags"], wanted)
    received = [driver.ask("counters")["received_bytes"] - first for driver, first in zip(drivers, before, strict=True)]
    print(f"{count} clients: {', '.join(f'{one / (share * OWN_BYTES):.3f}' for one in received)} of their own bytes")
    assert all(share * OWN_BYTES < one < MOST * share * OWN_BYTES for one in received)


def _in_a_second(driver: Program) -> int:
    first: int = driver.ask("counters")["received_bytes"]
    time.sleep(1)
    return int(driver.ask("counters")["received_bytes"]) - first


def _received(program: Program) -> dict[str, Any]:
    found: dict[str, Any] = program.ask("statistics")["received"]
    return found
