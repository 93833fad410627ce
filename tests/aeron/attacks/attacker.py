"""Hostile clients of a server: ``python -m tests.aeron.attacks.attacker ADDRESS KEY AERON_DIR``.

For each line of its input with the name of an attack, it connects with a key that has little more than the attack
needs, prints ``attacking``, and repeats the attack until the next line. Then it prints what it sent as a line of JSON.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final

import msgspec
import pyarrow as pa

import aeron_spark
from aeron_spark.aeron.checksum import crc32
from aeron_spark.client.client import Client
from aeron_spark.errors import AeronSparkError, DataFormatError, RefusedError
from aeron_spark.protocol.frames import RecordKind
from aeron_spark.protocol.rpc_messages import CALL
from aeron_spark.wire import stream_requests as rpc
from aeron_spark.wire.staged_items import encode_values_item
from tests.internals import core_of

STREAM: Final = "prices"  # that the attacker may read
OWN_STREAM: Final = "theirs"  # that it may write
CONNECT_S: Final = 180.0
READS: Final = 256  # of a connection
SEND_S: Final = 1.0  # an attacker that must wait for longer tries again


def waits(client: Client) -> Iterator[None]:
    """Waits for commits that never come, without end."""
    request = rpc.encode_request(rpc.AwaitCommits(STREAM, (1 << 60,), 20.0))
    proxy = client.remote(rpc.SERVICE).oneway
    while True:
        proxy[rpc.METHOD](request)
        yield


def one_way_calls(client: Client) -> Iterator[None]:
    """One-way calls that the server cannot refuse."""
    request = rpc.encode_request(rpc.ListStreams())
    proxy = client.remote(rpc.SERVICE).oneway
    while True:
        proxy[rpc.METHOD](request)
        yield


def large_calls(client: Client) -> Iterator[None]:
    """Calls of 15 MB, as fast as the server takes them."""
    request = bytes(15 * 1_000_000)
    proxy = client.remote(rpc.SERVICE).oneway
    while True:
        proxy[rpc.METHOD](request)
        yield


def leases(client: Client) -> Iterator[None]:
    """A lease for another reader each time."""
    proxy = client.remote(rpc.SERVICE).oneway
    number = 0
    while True:
        number += 1
        proxy[rpc.METHOD](rpc.encode_request(rpc.RenewLease(STREAM, f"reader-{number}", ((0, 0),), 300.0)))
        yield


def nested_calls(client: Client) -> Iterator[None]:
    """Arguments of 72 KB that are nested as deeply as they can be, past the client's own checks."""
    depth = 24_000
    nested = b"\x91" * depth + b"\xc0"
    record = CALL.pack(0) + b"\x94" + b"\xa7streams" + b"\xa6handle" + b"\x93" + nested * 3 + b"\x80"
    while True:
        core_of(client.connection).sender.push(RecordKind.CALL, record, time.monotonic() + SEND_S)
        yield


def untaken_reads(client: Client) -> Iterator[None]:
    """Reads on as many bulk links as a connection may have, of two connections; it takes nothing of them."""
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


def colliding_keys(client: Client) -> Iterator[None]:
    """Positions as a map whose keys collide in a dict of Python: each of the later ones walks over the first ones."""
    size = 1 << 18
    arc = [1]  # the places that the search for a free one visits, one after the other
    while len(arc) < 100_000:
        arc.append((5 * arc[-1] + 1) % size)
    keys = [*arc, *(size + one for one in arc[:70_000])]
    head = b"\x83\xa4type\xacmeasure-lags\xa6stream\xa6secret\xa9positions"
    positions = b"".join(b"\xce" + key.to_bytes(4, "big") + b"\x00" for key in keys)
    yield from repeated(client, [head + b"\xdf" + len(keys).to_bytes(4, "big") + positions])


def long_texts(client: Client) -> Iterator[None]:
    """Names of 15 MB for a stream, a reader and a run."""
    text = "x" * 15_000_000
    requests: list[dict[str, object]] = [
        {"type": "states", "stream": text},
        {"type": "lease", "stream": STREAM, "reader": text, "positions": [], "seconds": 300.0},
        {"type": "begin", "stream": OWN_STREAM, "writer": "w", "run": text, "transaction": None, "single_use": False,
         "producer": ""},
    ]  # fmt: skip
    yield from repeated(client, [msgspec.msgpack.encode(one) for one in requests])


def similar_names(client: Client) -> Iterator[None]:
    """Names of streams that do not exist, which the server compares with those that do."""
    yield from repeated(client, [rpc.encode_request(rpc.PartitionStates("ab" * 64))])


def unfinished_stages(client: Client) -> Iterator[None]:
    """Ends of stages for which the bytes never come, over ten connections of the key."""
    with ExitStack() as stack:
        for one in [client, *(stack.enter_context(connected(*sys.argv[1:])) for _ in range(9))]:
            link = one.bulk_link(CONNECT_S)
            opened = own_stage(one, task=0, link=link.number)
            finish = rpc.encode_request(rpc.FinishStage(OWN_STREAM, opened.stage, 1 << 40, 20.0))
            for _ in range(8):
                one.remote(rpc.SERVICE).oneway[rpc.METHOD](finish)
            yield
        while True:
            time.sleep(0.1)
            yield


def many_stages(client: Client) -> Iterator[None]:
    """Stages whose rows are in the request, without end."""
    items = b"".join(bytes(one) for one in encode_values_item(pa.array([b"row"], pa.binary())))
    task = 0
    while True:
        task += 1
        own_stage(client, task=task, items=items)
        yield


def wide_schemas(client: Client) -> Iterator[None]:
    """Stages with a schema of 14,000 columns."""
    schema = pa.schema([(f"column-with-a-long-name-{number:06}", pa.int64()) for number in range(14_000)])
    encoded = schema.serialize().to_pybytes()
    task = 0
    while True:
        task += 1
        with suppress(DataFormatError, RefusedError):
            own_stage(client, task=task, content="arrow", schema=encoded, items=b"?")
        yield


def computations(client: Client) -> Iterator[None]:
    """One-way calls of which each takes much processor time: stages with schemas that the server does not keep."""
    requests = [
        rpc.encode_request(stage_request(
            task=number, content="arrow", items=b"?",
            schema=pa.schema([(f"c{number}-{column}", pa.int64()) for column in range(600)]).serialize().to_pybytes(),
        ))
        for number in range(40)
    ]  # fmt: skip
    proxy = client.remote(rpc.SERVICE).oneway
    while True:
        for request in requests:
            proxy[rpc.METHOD](request)
            yield


def connections(client: Client) -> Iterator[None]:
    """Connections that are closed at once."""
    while True:
        connected(*sys.argv[1:]).close()
        yield


def bulk_links(client: Client) -> Iterator[None]:
    """Bulk links that are closed at once."""
    while True:
        client.bulk_link(CONNECT_S).close()
        yield


def streams(client: Client) -> Iterator[None]:
    """Streams of a hundred partitions that are deleted at once."""
    while True:
        client.create_stream(f"{OWN_STREAM}-more", partitions=100)
        client.delete_stream(f"{OWN_STREAM}-more")
        yield


def boundaries(client: Client) -> Iterator[None]:
    """Searches for the end of a range in the longest range that there is."""
    (partition,) = client.stream(STREAM).partitions
    request = rpc.FindBoundary(STREAM, 0, partition.start, (1 << 63) - 1, partition.end, None, framed=True)
    yield from repeated(client, [rpc.encode_request(request)])


def stopped_reads(client: Client) -> Iterator[None]:
    """Reads that begin and stop at once."""
    (partition,) = client.stream(STREAM).partitions
    link, number = client.bulk_link(CONNECT_S), 0
    handle = client.remote(rpc.SERVICE).with_timeout(CONNECT_S)[rpc.METHOD]
    while True:
        number += 1
        read = rpc.StartRead(STREAM, 0, partition.start, partition.end, link.number, number)
        for request in (read, rpc.StopRead(link.number, number)):
            handle(rpc.encode_request(request))
        yield


def own_stage(client: Client, **fields: Any) -> rpc.StageOpened:
    """Open a stage of the attacker's stream."""
    request = stage_request(**fields)
    response = client.remote(rpc.SERVICE).with_timeout(CONNECT_S)[rpc.METHOD](rpc.encode_request(request))
    return rpc.decode_response(request, response)


def stage_request(**fields: Any) -> rpc.OpenStage:
    """Return the request for a stage of the attacker's stream."""
    return rpc.OpenStage(**{
        "stream": OWN_STREAM, "transaction": rpc.Transaction("w", "r", 0), "partition": 0, "content": "raw",
        "schema": b"", "link": 0, "request": 0, **fields,
        "rows": 1 if "items" in fields else 0, "crc": crc32(fields.get("items", b"")),
    })  # fmt: skip


def repeated(client: Client, requests: Sequence[bytes]) -> Iterator[None]:
    """Send encoded requests in turn, and take their responses."""
    handle = client.remote(rpc.SERVICE).with_timeout(CONNECT_S)[rpc.METHOD]
    while True:
        for one in requests:
            handle(one)
            yield


ATTACKS: Final[dict[str, Callable[[Client], Iterator[None]]]] = {
    one.__name__: one
    for one in (
        waits, one_way_calls, large_calls, leases, nested_calls, untaken_reads, colliding_keys, long_texts,
        similar_names, unfinished_stages, many_stages, wide_schemas, computations, connections, bulk_links, streams,
        boundaries, stopped_reads,
    )
}  # fmt: skip


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
