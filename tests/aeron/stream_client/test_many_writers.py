"""A hundred writers of one stream: those of a program that hangs in its commits hold up none of the others."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from aeron_spark.client.client import Client
from aeron_spark.node import NodeHandle
from aeron_spark.server.server import Server
from tests.aeron.stream_client.conftest import Connect
from tests.programs import start_python
from tests.waiting import suspend

TIMEOUT_S: Final = 120.0  # for what an idle machine does in two seconds
WRITERS, HANGING, TRANSACTIONS = 100, 10, 3

# Commits transactions with several writers at once. Those of each second writer are too large for a commit request, and
# after the first one their rows stay in open stages until the input ends.
PROGRAM: Final = """
import sys
from concurrent.futures import ThreadPoolExecutor
import aeron_spark
from aeron_spark.keys.stores import MemoryPeerStore

address, aeron_dir, writers, transactions = sys.argv[1:]
with aeron_spark.connect(
    address, aeron_dir=aeron_dir, ipc="never", store=MemoryPeerStore(), timeout=120.0
) as client, ThreadPoolExecutor(int(writers)) as pool:
    names = [f"hanging-{number}" for number in range(int(writers))]
    opened = [client.writer("crowd", writer_id=name, payload="raw", timeout=120.0) for name in names]

    def write(number, transaction):
        opened[number].write([b"hanging/%d/%d" % (number, transaction) + bytes(number % 2 * 100_000)])

    def commit(number, transaction):
        write(number, transaction)
        opened[number].commit()

    def commit_others(number):
        for transaction in range(opened[number].last + 1, int(transactions)):
            commit(number, transaction)

    def commit_open(number):
        opened[number].commit()
        commit_others(number)

    list(pool.map(lambda number: commit(number, 0), range(len(opened))))
    large = range(1, len(opened), 2)
    for number in large:
        write(number, 1)
    ended = [pool.submit(commit_others, number) for number in range(0, len(opened), 2)]
    print("ready", flush=True)
    sys.stdin.read()
    ended += [pool.submit(commit_open, number) for number in large]
    for one in ended:
        one.result()
    for one in opened:
        one.close()
print("done", flush=True)
"""


def commit(client: Client, number: int) -> None:
    """Commit the transactions of one writer."""
    with client.writer("crowd", writer_id=f"w{number}", payload="raw", timeout=TIMEOUT_S) as out:
        for transaction in range(TRANSACTIONS):
            out.write([b"%d/%d" % (number, transaction)])
            out.commit()


def values_of(client: Client) -> list[bytes]:
    return [value.rstrip(b"\0") for batch in client.reader("crowd") for value in batch.column("value").to_pylist()]


@pytest.fixture(scope="module")
def client(connect: Connect) -> Client:
    return connect(timeout=TIMEOUT_S)


def test_of_100_writers_ten_hang_and_the_others_commit(client: Client, server: Server, node: NodeHandle) -> None:
    client.create_stream("crowd", 4)
    commit(client, WRITERS)  # the others then need no bulk link: the stream has rows of their content
    others = WRITERS - HANGING
    with start_python(PROGRAM, server.addresses[0], node.aeron_dir, str(HANGING), str(TRANSACTIONS * 4)) as program:
        assert program.stdout.readline() == "ready\n"
        suspend(program.pid)  # while its stages are open and its other writers commit
        try:
            with ThreadPoolExecutor(others) as pool:
                list(pool.map(lambda number: commit(client, number), range(others)))
            committed = values_of(client)
            assert program.poll() is None
        finally:
            os.kill(program.pid, signal.SIGCONT)
        output, _ = program.communicate(timeout=TIMEOUT_S)
        assert (program.returncode, output) == (0, "done\n")
    expected = {
        b"%d/%d" % (number, transaction) for number in [*range(others), WRITERS] for transaction in range(TRANSACTIONS)
    }
    hanging = {b"hanging/%d/%d" % (number, at) for number in range(HANGING) for at in range(TRANSACTIONS * 4)}
    assert expected <= set(committed)
    assert hanging - set(committed), "the program had committed everything before it was stopped"
    assert sorted(values_of(client)) == sorted(expected | hanging)
