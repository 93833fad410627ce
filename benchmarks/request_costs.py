"""Measures what a request to a server costs it at the request's bounds: processor, memory, descriptors and bytes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow as pa

import aeron_spark
from aeron_spark.aeron.checksum import crc32
from aeron_spark.client.client import Client
from aeron_spark.errors import AeronSparkError
from aeron_spark.wire import stream_requests as admin_rpc
from aeron_spark.wire import stream_requests as rpc
from aeron_spark.wire.staged_items import encode_values_item
from benchmarks.environment import Environment
from benchmarks.measure import Figure, cpu_seconds
from benchmarks.secure_server import run_server

REQUESTS: Final = 40  # of each kind
PARTITIONS: Final = 64
WRITERS, LEASES, STREAMS = 1_000, 1_000, 100  # what the longest responses list
ITEM_BYTES: Final = 8 << 20  # of the rows in a request
CALL_S: Final = 120.0
LINK_S: Final = 30.0
KIB: Final = 1 << 10


@dataclass
class Costs:
    """The median of the response times in seconds, and what the server used for each request, in seconds and bytes."""

    seconds: list[float] = field(default_factory=list)
    cpu: float = 0.0
    memory: float = 0.0
    descriptors: float = 0.0
    shared: float = 0.0
    sent: int = 0
    received: int = 0


class Measured:
    """A server's process whose use is measured, and a client with all grants."""

    def __init__(self, client: Client, pid: int, aeron_dir: str, count: int) -> None:
        self.client = client
        self.count = count
        self._server = psutil.Process(pid)
        self._shared = Path(aeron_dir)
        self._handle = client.remote(rpc.SERVICE).with_timeout(CALL_S)[rpc.METHOD]
        self._number = 0

    def number(self) -> int:
        """Return another number each time, for transactions, tasks and names."""
        self._number += 1
        return self._number

    def call(self, request: Any) -> Any:
        """Send a request and return its response."""
        return rpc.decode_response(request, self._handle(rpc.encode_request(request)))

    def costs(self, make: Callable[[], Any]) -> Costs:
        """Send requests that ``make`` makes, one after the other."""
        found, encoded = Costs(), [rpc.encode_request(make()) for _ in range(self.count)]
        before = self._usage()
        for one in encoded:
            begun = time.perf_counter()
            try:
                found.received = len(self._handle(one))
            except AeronSparkError:  # the response exceeds a limit, which is an answer, too
                found.received = 0
            found.seconds.append(time.perf_counter() - begun)
            found.sent = len(one)
        used = [(after - first) / self.count for after, first in zip(self._usage(), before, strict=True)]
        found.cpu, found.memory, found.descriptors, found.shared = used
        return found

    def link_costs(self) -> Costs:
        """Open bulk links, and close them at the end."""
        found, links = Costs(), []
        before = self._usage()
        for _ in range(self.count):
            begun = time.perf_counter()
            links.append(self.client.bulk_link(LINK_S))
            found.seconds.append(time.perf_counter() - begun)
        used = [(after - first) / self.count for after, first in zip(self._usage(), before, strict=True)]
        found.cpu, found.memory, found.descriptors, found.shared = used
        for one in links:
            one.close()
        return found

    def _usage(self) -> tuple[float, float, float, float]:
        memory = self._server.memory_info()
        sizes = [one.stat().st_blocks * 512 for one in self._shared.rglob("*") if one.is_file()]
        return cpu_seconds(self._server), memory.rss - memory.shared, self._server.num_fds(), sum(sizes)


def run(env: Environment) -> Iterator[Figure]:
    """Measure each kind of request at its bounds."""
    count = 2 if env.quick else REQUESTS
    with run_server(env, "request-costs") as server:
        options = server.connection
        with aeron_spark.connect(
            options["server"], identity=options["identity"], server_key=options["serverKey"],
            aeron_dir=options["aeronDir"],
        ) as client:  # fmt: skip
            measured = Measured(client, server.pid, env.node.aeron_dir, count)
            for name, make in _requests(measured, quick=env.quick).items():
                yield _figure(name, measured.costs(make))
            yield _figure("a bulk link", measured.link_costs())


def _requests(measured: Measured, *, quick: bool) -> dict[str, Callable[[], Any]]:
    """Return, by name, a function that makes a request of this kind with its largest values."""
    stream, writer, run, reader = "costs", "w" * 255, "r" * 255, "l" * 255
    measured.client.create_stream(stream, partitions=PARTITIONS)
    for number in range(2 if quick else STREAMS):
        measured.client.create_stream(f"costs-{number:03}-{'x' * 110}")
    for number in range(2 if quick else WRITERS):
        measured.call(rpc.BeginTransaction(stream, rpc.Transaction(f"{number:05}{'w' * 250}", run, 0, producer="p")))
    next_one = rpc.Transaction(writer, run, rpc.NEXT_NUMBER, producer="p")
    positions = tuple((partition, 0) for partition in range(PARTITIONS))
    for number in range(2 if quick else LEASES - 1):
        measured.call(rpc.RenewLease(stream, f"{number:05}{'l' * 250}", positions, 300.0))
    values = pa.array([bytes(1_000)] * (ITEM_BYTES // 1_000), pa.binary())
    items = b"".join(bytes(one) for one in encode_values_item(values))
    part = rpc.InlinePart(0, 0, "raw", b"", len(values), items, crc32(items))

    def stage() -> rpc.OpenStage:
        return rpc.OpenStage(
            stream, rpc.Transaction(writer, run, 1 << 40, producer="p"), 0, measured.number(), "raw", b"", 0, 0,
            items=items, rows=len(values), crc=crc32(items),
        )  # fmt: skip

    def columns(count: int) -> Callable[[], rpc.OpenStage]:
        """Return a maker of stages whose schemas are not equal, and whose rows are invalid."""

        def make() -> rpc.OpenStage:
            number = measured.number()
            schema = pa.schema([(f"column-{number}-{column:06}", pa.int64()) for column in range(count)])
            return rpc.OpenStage(
                stream, rpc.Transaction(writer, run, 1 << 40, producer="p"), 0, number, "arrow",
                schema.serialize().to_pybytes(), 0, 0, items=b"?", rows=1, crc=crc32(b"?"),
            )  # fmt: skip

        return make

    def commit() -> rpc.CommitTransaction:
        transaction = rpc.Transaction("writer", run, measured.number(), producer="p")
        return rpc.CommitTransaction(stream, transaction, (part,), len(values), 20.0, token="t" * 1_024)

    def commit_empty() -> rpc.CommitEmptyTransaction:
        transaction = rpc.Transaction("empty", run, measured.number(), producer="p")
        return rpc.CommitEmptyTransaction(stream, transaction, 20.0)

    return {
        "a request without its grant, or unknown names": lambda: rpc.PartitionStates("costs-" + "ab" * 61),
        "list of 100 streams": admin_rpc.ListStreams,
        "description of 64 partitions": lambda: admin_rpc.DescribeStream(stream),
        "list of 1,000 writer ids": lambda: admin_rpc.ListWriters(stream),
        "list of 1,000 leases of 64 partitions": lambda: admin_rpc.ListLeases(stream),
        "states of 64 partitions": lambda: rpc.PartitionStates(stream),
        "lags of 64 partitions": lambda: rpc.MeasureLags(stream, positions),
        "lease of 64 partitions": lambda: rpc.RenewLease(stream, reader, positions, 300.0),
        "wait for commits": lambda: rpc.AwaitCommits(stream, (1 << 62,) * PARTITIONS, 0.0),
        "begin of a transaction": lambda: rpc.BeginTransaction(stream, next_one),
        "stage with 8 MiB of rows": stage,
        "stage with a schema of 2,000 columns": columns(2_000),
        "refused stage with a schema of 14,000 columns": columns(14_000),
        "commit with 8 MiB of rows": commit,
        "commit without rows": commit_empty,
    }


def _figure(name: str, costs: Costs) -> Figure:
    return Figure(
        f"cost of a request at its bounds: {name}",
        costs.cpu * 1e3,
        "ms of the server's processor",
        detail=f"response after {statistics.median(costs.seconds) * 1e3:.1f} ms (median), {costs.sent / KIB:,.1f} KiB "
        f"in, {costs.received / KIB:,.1f} KiB out; it keeps {costs.memory / KIB:,.0f} KiB of memory, "
        f"{costs.descriptors:.1f} descriptors and {costs.shared / KIB:,.0f} KiB of shared memory",
        samples={"response time, ms": [seconds * 1e3 for seconds in costs.seconds]},
    )
