"""The second act: a client beyond a NAT, a secure server with named streams, and Spark that copies exactly once."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from aeron_spark.keys.identity import ensure_identity
from aeron_spark.protocol.keypair import public_text
from demo import Failed
from demo.comparing import compare
from demo.flights import SCHEMA, Day, by_day
from demo.network import Network, network
from demo.processes import Process, aeron_directory
from demo.secure import COPIES, DAYS, FLIGHTS, SecureQueries
from demo.stage import Stage
from demo.watching import POLL, await_words, equal_days, throughput, watch

PARTITIONS: Final = 2
LISTENING: Final = 60.0  # seconds for the server to listen
CONNECTING: Final = "60s"  # for a reader or writer: the machine may be busy with starting them
FINISH: Final = 180.0  # seconds for the queries to come to the end of what is committed
READING: Final = 180.0  # seconds for a stream to be read back
SEEN: Final = re.compile(r"^connect .*tag=sender .*remote_address=(\S+) remote_port=(\d+)")


class Scene:
    """The server and the client's side of the act: where they are, their keys, what they run."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._place = stage.place / "secure"
        self._place.mkdir()
        self.network: Network = stage.start(network)
        self._server_dir = stage.start(lambda: aeron_directory("server"))
        self._client_dir = stage.start(lambda: aeron_directory("client"))
        keys = {name: public_text(ensure_identity(self._key(name)).public) for name in ("server", "sender", "spark")}
        self._server_key = keys["server"]
        clients = self._place / "clients"
        clients.write_text(
            f"{keys['sender']} the sender: everything\n"
            f"streams={FLIGHTS}:read streams={COPIES},{DAYS}:read,write {keys['spark']} Spark\n"
        )
        self._server = self._start_server(clients)

    @property
    def options(self) -> dict[str, str]:
        """What Spark is told of the server; the keys are in files."""
        return {
            "server": self.network.address,
            "serverKey": self._server_key,
            "identity": str(self._key("spark")),
            "aeronDir": self._server_dir,
            "connectTimeout": CONNECTING,
        }

    def sender(self) -> Process:
        """Start the client that makes the streams and sends the flights."""
        where = ["--server", self.network.address, "--server-key", self._server_key, "--stream", FLIGHTS]
        who = ["--identity", str(self._key("sender")), "--aeron-dir", self._client_dir]
        make = [f"--make={name}={PARTITIONS}" for name in (FLIGHTS, COPIES, DAYS)]
        what = ["--rows", str(self._stage.flights.num_rows), "--seconds", str(self._stage.seconds)]
        command = [*self.network.at_client, sys.executable, "-m", "demo.sender", *where, *who, *make, *what]
        return self._stage.start(lambda: Process("the sender", command, self._place / "sender.out"))

    def seen(self) -> str:
        """Return the address and port at which the server sees the sender."""
        found = [match for line in self._server.lines() if (match := SEEN.match(line))]
        return ":".join(found[-1].groups()) if found else "an address that it does not say"

    def read_back(self, *streams: str) -> list[pa.Table]:
        """Read whole streams on the client's side, with the package's own command, into files."""
        readers = [self._receive(stream) for stream in streams]
        deadline = time.monotonic() + READING
        while not all(reader.ended() for reader in readers):
            if time.monotonic() > deadline:
                raise Failed(f"the streams were not read back within {READING:g} s")
            time.sleep(POLL)
        return [pq.read_table(self._file(stream)) for stream in streams]

    def _receive(self, stream: str) -> Process:
        options = {
            "identity": self._key("sender"),
            "serverKey": self._server_key,
            "aeronDir": self._client_dir,
            "connectTimeout": CONNECTING,
        }
        command: list[str | Path] = [
            *self.network.at_client, sys.executable, "-m", "aeron_spark", "receive", "--server", self.network.address,
            "--stream", stream, "--output", self._file(stream), "--metadata",
            *(f"--option={name}={value}" for name, value in options.items()),
        ]  # fmt: skip
        return self._stage.start(lambda: Process(f"reading {stream} back", command, self._place / f"{stream}.out"))

    def _start_server(self, clients: Path) -> Process:
        command: list[str | Path] = [
            *self.network.at_server, sys.executable, "-m", "aeron_spark", "server", self.network.address,
            "--aeron-dir", self._server_dir, "--streams-dir", self._place / "streams",
            "--identity", self._key("server"), "--authorized-keys", clients,
        ]  # fmt: skip
        server = self._stage.start(lambda: Process("the server", command, self._place / "server.out"))
        deadline = time.monotonic() + LISTENING
        while not any(line.startswith("listening") for line in server.lines()):
            if server.ended() or time.monotonic() > deadline:
                raise Failed(f"the server does not listen: {' | '.join(server.lines()[-3:])}")
            time.sleep(POLL)
        return server

    def _key(self, name: str) -> Path:
        return self._place / f"{name}.key"

    def _file(self, stream: str) -> Path:
        return self._place / f"{stream}.parquet"


def play(stage: Stage, spark: SparkSession) -> str:
    """Play it; return what became of the flights, or raise Failed."""
    scene = Scene(stage)
    stage.say(f"Second act: {scene.network.words}; each knows the other's key, and all is encrypted")
    sender = scene.sender()
    await_words(sender)
    stage.say(f"The server sees the sender at {scene.seen()}; Spark reads its stream, with a key of its own")
    queries = SecureQueries(spark, stage.place, scene.options)
    queries.start()
    published = watch(
        queries, sender, stage.flights.num_rows, ("sent to the server", "copied through Spark"), stage.console
    )
    stage.say(throughput(queries, stage.flights, published, "copied to another stream"))
    queries.stop()
    queries.finish(FINISH)
    stage.say("Stopped the queries, let them go on, and read both streams back beyond the NAT")
    copies, days = scene.read_back(COPIES, DAYS)
    return _verify(stage, copies, days)


def _verify(stage: Stage, copies: pa.Table, days: pa.Table) -> str:
    """Print both comparisons; return that of the flights, or raise Failed where anything differs."""
    result = compare(stage.flights, copies.select(SCHEMA.names).cast(SCHEMA))
    stage.say(f"Flights, row for row: {result.sentence}")
    if not result.equal:
        raise Failed(f"the stream '{COPIES}' is not what was sent: {result.sentence}")
    expected = by_day(stage.flights)
    batches, repeated = written(days)
    latest = latest_days(days)
    stage.say(
        f"Days by event time: {len(expected)} in, {len(latest)} out, as they grew, in {batches} transactions of "
        f"{days.num_rows} rows, {repeated} repeated"
    )
    equal_days(f"the stream '{DAYS}'", latest, expected)
    if repeated:
        raise Failed(f"the stream '{DAYS}' has {repeated} rows twice: a micro-batch was written again")
    return result.sentence


def latest_days(rows: pa.Table) -> dict[str, Day]:
    """Return the newest result of each day: the one with most flights, as their number only ever grows."""
    days: dict[str, Day] = {}
    for row in rows.select(["day", "flights", "departed", "delay"]).to_pylist():
        day = Day(row["flights"], row["departed"], row["delay"])
        days[row["day"]] = max(day, days.get(row["day"], day))
    return days


def written(rows: pa.Table) -> tuple[int, int]:
    """Return how many micro-batches wrote rows, and how many rows are there twice, by what the writer calls them."""
    batches = rows.group_by(["_aeron_writer", "_aeron_batch"]).aggregate([]).num_rows
    distinct = rows.group_by(["_aeron_writer", "_aeron_batch", "_aeron_partition", "_aeron_row"]).aggregate([])
    return batches, rows.num_rows - distinct.num_rows
