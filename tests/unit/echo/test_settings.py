"""What a server can be told, and what it refuses before it starts."""

from __future__ import annotations

import pytest

from aeron_spark.echo.echo1 import Server1Settings
from aeron_spark.echo.echo2 import Server2Settings
from aeron_spark.errors import OptionError
from aeron_spark.transport.addresses import HostPort

HERE = HostPort("127.0.0.1", 9000)


def test_the_reference_s_example_is_fine() -> None:
    assert Server2Settings(HERE, 9001, 9010, 8).per_address == 3


@pytest.mark.parametrize(
    ("control", "base", "clients", "says"),
    [
        (9000, 9010, 8, "listen and control are both port 9000"),
        (0, 9010, 8, "control has the port 0"),
        (65536, 9010, 8, "control has the port 65536"),
        (9001, 9000, 8, "the listen port 9000 is one of the duologues', 9000 to 9015"),
        (8999, 8984, 8, "the control port 8999 is one of the duologues', 8984 to 8999"),
        (9001, 0, 8, "invalid base port 0"),
        (9001, 65530, 8, "from 65530 would be 65545"),
        (9001, 9010, 0, "cannot have 0 clients"),
        (9001, 9010, 40_000, "cannot have 40000 clients"),
    ],
)
def test_what_cannot_work_is_refused(control: int, base: int, clients: int, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        Server2Settings(HERE, control, base, clients)


def test_the_port_beside_the_range_is_free() -> None:
    assert Server2Settings(HERE, 8985, 8986, 7).duologue_ports == 8986


def test_a_server_of_echo_1_has_a_client_at_least() -> None:
    with pytest.raises(OptionError, match="cannot have 0 clients"):
        Server1Settings(HERE, 0)
