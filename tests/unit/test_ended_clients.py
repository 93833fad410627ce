"""Which of a driver's Aeron clients have a process that has ended, from the counters of their heartbeats."""

from __future__ import annotations

import os
from pathlib import Path

from aeron_spark.aeron.client import ClientProcesses, EndedClient, client_name
from aeron_spark.aeron.counters import Counter
from aeron_spark.aeron.driver import HEARTBEAT_TYPE


class Machine:
    """The processes of a machine: those that have mapped the CnC file, and those that have ended."""

    def __init__(self, *mapped: int) -> None:
        self.mapped = set(mapped)
        self.gone: set[int] = set()
        self.clients = ClientProcesses("/dev/shm/aeron", has_mapped=self.has_mapped, has_ended=self.gone.__contains__)

    def has_mapped(self, pid: int, file: Path) -> bool:
        assert file == Path("/dev/shm/aeron/cnc.dat")
        return pid in self.mapped - self.gone

    def kill(self, pid: int) -> None:
        self.gone.add(pid)


def heartbeat(client: int, name: str) -> Counter:
    label = f"client-heartbeat: id={client}{f' name={name}' if name else ''} version=1.51.0 commit=abc"
    return Counter(client, HEARTBEAT_TYPE, label, 0, client, 0)


def test_a_client_whose_process_was_killed_has_ended() -> None:
    machine = Machine(77, 78)
    both = [heartbeat(5, "aeron-spark 77"), heartbeat(6, "aeron-spark 78")]
    assert machine.clients.ended(both) == []
    machine.kill(77)
    assert machine.clients.ended(both) == [EndedClient(5, 77)]
    assert machine.clients.ended(both) == [EndedClient(5, 77)]  # until the driver has closed it
    assert machine.clients.ended(both[1:]) == []


def test_a_client_is_known_as_soon_as_it_names_itself() -> None:
    machine = Machine(77)
    assert machine.clients.ended([heartbeat(5, "")]) == []
    assert machine.clients.ended([heartbeat(5, "aeron-spark 77")]) == []
    machine.kill(77)
    assert machine.clients.ended([heartbeat(5, "aeron-spark 77")]) == [EndedClient(5, 77)]


def test_a_client_of_another_namespace_never_ends() -> None:
    """Its process id is also that of a program here, which has nothing to do with the driver."""
    machine = Machine()
    ours = [heartbeat(5, "aeron-spark 77")]
    assert machine.clients.ended(ours) == []
    machine.mapped.add(77)
    assert machine.clients.ended(ours) == []
    machine.kill(77)
    assert machine.clients.ended(ours) == []


def test_clients_of_other_programs_never_end() -> None:
    machine = Machine(77)
    others = [heartbeat(5, "archive"), heartbeat(6, "my aeron-spark 77"), heartbeat(7, "aeron-spark 77x")]
    machine.clients.ended(others)
    machine.kill(77)
    assert machine.clients.ended(others) == []


def test_a_later_client_of_another_process_with_the_same_id_is_a_different_one() -> None:
    machine = Machine(77)
    machine.clients.ended([heartbeat(5, "aeron-spark 77")])
    machine.kill(77)
    machine.clients.ended([])
    machine.gone.clear()
    assert machine.clients.ended([heartbeat(9, "aeron-spark 77")]) == []


def test_the_name_of_this_processs_client_is_understood() -> None:
    machine = Machine(os.getpid())
    own = [heartbeat(5, client_name())]
    machine.clients.ended(own)
    machine.kill(os.getpid())
    assert machine.clients.ended(own) == [EndedClient(5, os.getpid())]
