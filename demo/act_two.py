"""The second act: a client behind NAT writes to a server's stream, and Spark copies the stream exactly once."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from aeron_spark.keys.stores import ensure_identity
from aeron_spark.protocol.keypair import public_text
from demo import DemoError
from demo.comparing import compare
from demo.flights import SCHEMA, Day, by_day
from demo.network import Network, network
from demo.processes import Process, aeron_directory
from demo.secure import COPIES, DAYS, FLIGHTS, SecureQueries
from demo.stage import Stage
from demo.watching import POLL_INTERVAL_S, equal_days, throughput, wait_for_progress, watch

PARTITIONS: Final = 2
LISTEN_TIMEOUT_S: Final = 60.0  # for the server to start listening
CONNECT_TIMEOUT: Final = "60s"  # long, because the machine is busy with starting processes
FINISH_TIMEOUT_S: Final = 180.0  # for the queries to reach the end of the committed rows
READ_TIMEOUT_S: Final = 180.0  # for reading a stream back
CONNECT_EVENT: Final = re.compile(r"INFO connected .*\bname=sender .*\baddress=(\S+) port=(\d+)")


class SecureSetup:
    """The server and its clients: networks, keys and processes."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._folder = stage.folder / "secure"
        self._folder.mkdir()
        self.network: Network = stage.start(network)
        self._server_dir = stage.start(lambda: aeron_directory("server"))
        self._client_dir = stage.start(lambda: aeron_directory("client"))
        keys = {name: public_text(ensure_identity(self._key(name)).public) for name in ("server", "sender", "spark")}
        self._server_key = keys["server"]
        clients = self._folder / "clients"
        clients.write_text(
            f"all name=sender {keys['sender']}\n"
            f"streams={FLIGHTS}:read streams={COPIES},{DAYS}:read,write name=spark {keys['spark']}\n"
        )
        self._server = self._start_server(clients)

    @property
    def options(self) -> dict[str, str]:
        """The connector options of Spark. The private keys are in files."""
        return {
            "server": self.network.address,
            "serverKey": self._server_key,
            "identity": str(self._key("spark")),
            "aeronDir": self._server_dir,
            "connectTimeout": CONNECT_TIMEOUT,
        }

    def sender(self) -> Process:
        """Start the client that creates the streams and sends the flights."""
        server = ["--server", self.network.address, "--server-key", self._server_key, "--stream", FLIGHTS]
        identity = ["--identity", str(self._key("sender")), "--aeron-dir", self._client_dir]
        make = [f"--make={name}={PARTITIONS}" for name in (FLIGHTS, COPIES, DAYS)]
        amount = ["--rows", str(self._stage.flights.num_rows), "--seconds", str(self._stage.seconds)]
        command = [*self.network.at_client, sys.executable, "-m", "demo.sender", *server, *identity, *make, *amount]
        return self._stage.start(lambda: Process("the sender", command, self._folder / "sender.out"))

    def sender_address(self) -> str:
        """Return the sender's address and port as the server sees them, after NAT. Call it when rows were sent.

        Raises DemoError if the server's log has no event of the sender's connection.
        """
        found = [match for line in self._server.lines() if (match := CONNECT_EVENT.search(line))]
        if not found:
            raise DemoError("the server's log has no event 'connected' of the sender, although the sender sent rows")
        return ":".join(found[-1].groups())

    def read_back(self, *streams: str) -> list[pa.Table]:
        """Read streams completely with ``aeron-spark receive`` on the client's side of the NAT."""
        readers = [self._receive(stream) for stream in streams]
        deadline = time.monotonic() + READ_TIMEOUT_S
        while not all(reader.has_ended() for reader in readers):
            if time.monotonic() > deadline:
                raise DemoError(f"the streams were not read back within {READ_TIMEOUT_S:g} s")
            time.sleep(POLL_INTERVAL_S)
        return [pq.read_table(self._file(stream)) for stream in streams]

    def _receive(self, stream: str) -> Process:
        options = {
            "identity": self._key("sender"),
            "serverKey": self._server_key,
            "aeronDir": self._client_dir,
            "connectTimeout": CONNECT_TIMEOUT,
        }
        command: list[str | Path] = [
            *self.network.at_client, sys.executable, "-m", "aeron_spark", "receive", "--server", self.network.address,
            "--stream", stream, "--output", self._file(stream), "--metadata",
            *(f"--option={name}={value}" for name, value in options.items()),
        ]  # fmt: skip
        return self._stage.start(lambda: Process(f"reading {stream} back", command, self._folder / f"{stream}.out"))

    def _start_server(self, clients: Path) -> Process:
        command: list[str | Path] = [
            *self.network.at_server, sys.executable, "-m", "aeron_spark", "server", self.network.address,
            "--aeron-dir", self._server_dir, "--streams-dir", self._folder / "streams",
            "--identity", self._key("server"), "--authorized-keys", clients,
        ]  # fmt: skip
        server = self._stage.start(lambda: Process("the server", command, self._folder / "server.out"))
        deadline = time.monotonic() + LISTEN_TIMEOUT_S
        while not any(line.startswith("listening") for line in server.lines()):
            if server.has_ended() or time.monotonic() > deadline:
                raise DemoError(
                    f"the server does not listen after {LISTEN_TIMEOUT_S:g} s: {' | '.join(server.lines()[-3:])}"
                )
            time.sleep(POLL_INTERVAL_S)
        return server

    def _key(self, name: str) -> Path:
        return self._folder / f"{name}.key"

    def _file(self, stream: str) -> Path:
        return self._folder / f"{stream}.parquet"


def play(stage: Stage, spark: SparkSession) -> str:
    """Run the act. Return a sentence with the result. Raises DemoError if a step fails or a result is wrong."""
    setup = SecureSetup(stage)
    stage.print(f"Second act: {setup.network.description}; both ends know the other's key, all packets are encrypted")
    sender = setup.sender()
    wait_for_progress(sender)
    stage.print(f"The server sees the sender at {setup.sender_address()}; Spark reads the stream with its own key")
    queries = SecureQueries(spark, stage.folder, setup.options)
    queries.start()
    published = watch(
        queries, sender, stage.flights.num_rows, ("sent to the server", "copied through Spark"), stage.console
    )
    stage.print(throughput(queries, stage.flights, published, "copied to another stream"))
    queries.stop()
    queries.finish(FINISH_TIMEOUT_S)
    stage.print("Stopped and continued the queries, and read both streams back behind the NAT")
    copies, days = setup.read_back(COPIES, DAYS)
    return _verify(stage, copies, days)


def _verify(stage: Stage, copies: pa.Table, days: pa.Table) -> str:
    """Print the results of both comparisons and return that of the flights. Raises DemoError for a difference."""
    result = compare(stage.flights, copies.select(SCHEMA.names).cast(SCHEMA))
    stage.print(f"Flights, compared row by row: {result.sentence}")
    if not result.equal:
        raise DemoError(f"the stream '{COPIES}' differs from the sent flights: {result.sentence}")
    expected = by_day(stage.flights)
    batches, repeated = count_written(days)
    latest = latest_days(days)
    stage.print(
        f"Days by event time: {len(expected)} in, {len(latest)} out, in {batches} transactions with "
        f"{days.num_rows} rows, {repeated} repeated"
    )
    equal_days(f"the stream '{DAYS}'", latest, expected)
    if repeated:
        raise DemoError(f"the stream '{DAYS}' has {repeated} repeated rows: a micro-batch was written twice")
    return result.sentence


def latest_days(rows: pa.Table) -> dict[str, Day]:
    """Return the newest result of each day: the one with most flights, because their number only increases."""
    days: dict[str, Day] = {}
    for row in rows.select(["day", "flights", "departed", "delay"]).to_pylist():
        day = Day(row["flights"], row["departed"], row["delay"])
        days[row["day"]] = max(day, days.get(row["day"], day))
    return days


def count_written(rows: pa.Table) -> tuple[int, int]:
    """Return the number of micro-batches that wrote rows, and the number of repeated rows, by the rows' metadata."""
    batches = rows.group_by(["_aeron_writer", "_aeron_batch"]).aggregate([]).num_rows
    distinct = rows.group_by(["_aeron_writer", "_aeron_batch", "_aeron_partition", "_aeron_row"]).aggregate([])
    return batches, rows.num_rows - distinct.num_rows
