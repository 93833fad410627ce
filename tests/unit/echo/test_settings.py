"""Settings of Echo servers, and the ones that they refuse before they start."""

from __future__ import annotations

import pytest

from aeron_spark.echo.echo1 import Server1Settings
from aeron_spark.echo.echo2 import Server2Settings
from aeron_spark.errors import OptionError
from aeron_spark.transport.addresses import HostPort

LISTEN = HostPort("127.0.0.1", 9000)


def test_the_example_of_the_reference_is_accepted() -> None:
    assert Server2Settings(LISTEN, 9001, 9010, 8).per_address == 3


@pytest.mark.parametrize(
    ("control", "base", "clients", "says"),
    [
        (9000, 9010, 8, "listen and control are both port 9000"),
        (0, 9010, 8, "the control port is 0, expected 1 to 65535"),
        (65536, 9010, 8, "the control port is 65536"),
        (9001, 9000, 8, "the listen port 9000 is in the range of the duologues, 9000 to 9015"),
        (8999, 8984, 8, "the control port 8999 is in the range of the duologues, 8984 to 8999"),
        (9001, 0, 8, "invalid base port 0"),
        (9001, 65530, 8, "from 65530 would be 65545"),
        (9001, 9010, 0, "cannot have 0 clients"),
        (9001, 9010, 40_000, "cannot have 40000 clients"),
    ],
)
def test_contradictory_ports_and_numbers_are_refused(control: int, base: int, clients: int, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        Server2Settings(LISTEN, control, base, clients)


def test_a_server_port_may_be_next_to_the_range_of_the_duologues() -> None:
    assert Server2Settings(LISTEN, 8985, 8986, 7).duologue_ports == 8986


def test_a_server_of_echo_1_needs_at_least_one_client() -> None:
    with pytest.raises(OptionError, match="cannot have 0 clients"):
        Server1Settings(LISTEN, 0)
