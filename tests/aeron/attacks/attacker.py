"""Hostile clients of a server: ``python -m tests.aeron.attacks.attacker ADDRESS KEY AERON_DIR``.

For each line of its input with the name of an attack, it connects with a key that has little more than the attack
needs, prints ``attacking``, and repeats the attack until the next line. Then it prints what it sent as a line of JSON.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import aeron_spark
from aeron_spark.client.client import Client
from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol.frames import RecordKind
from aeron_spark.protocol.rpc_messages import CALL
from aeron_spark.wire import stream_admin_rpc as admin_rpc
from aeron_spark.wire import stream_rpc as rpc
from tests.internals import runner_of

STREAM: Final = "prices"
MIB: Final = 1 << 20
CONNECT_S: Final = 180.0
READS: Final = 256  # of a connection
SEND_S: Final = 1.0  # an attacker that must wait for longer tries again


def waits(client: Client) -> Iterator[None]:
    """S1: waits for commits that never come, without end."""
    request = rpc.encode_request(rpc.AwaitCommits(STREAM, (1 << 60,), 20.0))
    proxy = client.remote(rpc.SERVICE).oneway
    while True:
        proxy[rpc.METHOD](request)
        yield


def one_way_calls(client: Client) -> Iterator[None]:
    """S1: one-way calls that the server cannot refuse."""
    request = rpc.encode_request(admin_rpc.ListStreams())
    proxy = client.remote(rpc.SERVICE).oneway
    while True:
        proxy[rpc.METHOD](request)
        yield


def large_calls(client: Client) -> Iterator[None]:
    """S2: calls of 15 MB, as fast as the server takes them."""
    request = bytes(15 * 1_000_000)
    proxy = client.remote(rpc.SERVICE).oneway
    while True:
        proxy[rpc.METHOD](request)
        yield


def leases(client: Client) -> Iterator[None]:
    """S6: a lease for another reader each time."""
    proxy = client.remote(rpc.SERVICE).oneway
    number = 0
    while True:
        number += 1
        proxy[rpc.METHOD](rpc.encode_request(rpc.RenewLease(STREAM, f"reader-{number}", ((0, 0),), 300.0)))
        yield


def nested_calls(client: Client) -> Iterator[None]:
    """S9: arguments of 72 KB that are nested as deeply as they can be, past the client's own checks."""
    depth = 24_000
    nested = b"\x91" * depth + b"\xc0"
    record = CALL.pack(0) + b"\x94" + b"\xa7streams" + b"\xa6handle" + b"\x93" + nested * 3 + b"\x80"
    while True:
        runner_of(client.connection).sender.push(RecordKind.CALL, record, time.monotonic() + SEND_S)
        yield


def untaken_reads(client: Client) -> Iterator[None]:
    """E4, A3: reads on as many bulk links as a connection may have, of two connections; it takes nothing of them."""
    (partition,) = client.stream(STREAM).partitions
    with connected(*sys.argv[1:]) as other:
        for one in (client, other):
            proxy = one.remote(rpc.SERVICE)
            for number in range(READS):
                link = one.bulk_link(CONNECT_S)
                read = rpc.StartRead(STREAM, 0, partition.start, partition.end, link.number, number)
                proxy[rpc.METHOD](rpc.encode_request(read))
                yield
        while True:
            time.sleep(0.1)
            yield


ATTACKS: Final[dict[str, Callable[[Client], Iterator[None]]]] = {
    one.__name__: one for one in (waits, one_way_calls, large_calls, leases, nested_calls, untaken_reads)
}


def main(address: str, key: str, aeron_dir: str) -> None:
    """Run the commands of the input: the name of an attack, and ``stop``."""
    connected(address, key, aeron_dir).close()  # starts the JVM: with the low priority of later, that takes a minute
    print("ready", flush=True)
    while name := sys.stdin.readline().strip():
        client = connected(address, key, aeron_dir)
        report = repeat(ATTACKS[name], client)
        client.close()  # what an ended connection has queued must not delay others
        print(json.dumps(report), flush=True)


def connected(address: str, key: str, aeron_dir: str) -> Client:
    """Connect, with several attempts: on a busy machine other processes leave little time to this one."""
    end = time.monotonic() + CONNECT_S
    while True:
        try:
            return aeron_spark.connect(
                address, identity=key, aeron_dir=aeron_dir, trust_first_use=True, send_timeout=SEND_S, close_timeout=0.1
            )
        except AeronSparkError:
            if time.monotonic() >= end:
                raise


def repeat(attack: Callable[[Client], Iterator[None]], client: Client) -> dict[str, int]:
    """Repeat an attack until the next line of the input; return how often it was sent, and failed."""
    steps, sent, failed = attack(client), 0, 0
    print("attacking", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        try:
            next(steps)
            sent += 1
        except AeronSparkError:  # the server slows this client down, or has closed its connection
            failed += 1
            with suppress(AeronSparkError):
                client.connect(SEND_S)
            steps = attack(client)
    sys.stdin.readline()
    return {"sent": sent, "failed": failed}


if __name__ == "__main__":
    main(*sys.argv[1:])
