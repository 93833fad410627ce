"""The environment of a run: a node, a Spark session and plain Java programs; all of it is removed at the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from aeron_spark import node
from aeron_spark.aeron.jvm import classpath
from aeron_spark.node import NodeHandle
from benchmarks.measure import PEERS
from benchmarks.programs import await_end
from benchmarks.turns import take_turns

CHANNEL: Final = "aeron:ipc"
JAVA_SOURCE: Final = Path(__file__).with_name("java") / "PlainAeron.java"
JAVA_COMMAND: Final = (
    "java",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "-XX:+UseSerialGC",
    "-Dagrona.disable.bounds.checks=true",
)
JAVA_TIMEOUT_S: Final = 300.0  # for a Java program to do its part
LOG_CHARACTERS: Final = 4000  # of a node's log, printed after a failure


@dataclass
class Environment:
    """Serves every benchmark. ``quick`` asks for tiny sizes, whose figures mean nothing."""

    spark: SparkSession
    node: NodeHandle
    folder: Path
    quick: bool
    last_stream_id: int = 1000
    rounds: int = 5
    _recorded_streams: dict[tuple[int, int], int] = field(default_factory=dict)

    def take_turns(self, cases: Mapping[str, Callable[[], float]], *, warm: int = 1) -> dict[str, list[float]]:
        """Run the cases for the rounds of this run; see :func:`benchmarks.turns.take_turns`."""
        return take_turns(cases, rounds=self.rounds, warm=0 if self.quick else warm)

    def new_stream_id(self) -> int:
        """Return an unused stream id."""
        self.last_stream_id += 1
        return self.last_stream_id

    def stream_options(self, stream: int, **more: object) -> dict[str, str]:
        """Return the connector's options for a stream of this environment's node."""
        options = {"channel": CHANNEL, "streamId": stream, "aeronDir": self.node.aeron_dir, **more}
        return {name: str(value) for name, value in options.items()}

    def read_batch(self, stream: int, **more: object) -> DataFrame:
        """Return a stream's recordings as a batch."""
        return self.spark.read.format("aeron").options(**self.stream_options(stream, payload="raw", **more)).load()

    def recorded_stream(self, messages: int, length: int) -> int:
        """Return a stream with one recording of that many messages; a plain Java publisher makes it on first use."""
        key = (messages, length)
        if key not in self._recorded_streams:
            stream = self.new_stream_id()
            with self.plain_recording(stream, messages, length) as publish:
                publish()
            self._recorded_streams[key] = stream
        return self._recorded_streams[key]

    @contextmanager
    def another_node(self, name: str, **settings: Any) -> Iterator[NodeHandle]:
        """Run a further node, and remove all its files at the end."""
        aeron_dir = f"{self.node.aeron_dir}-{name}"
        try:
            with node.ensure(aeron_dir, **settings) as other:
                yield other
        finally:
            node.stop(aeron_dir, force=True)
            shutil.rmtree(aeron_dir, ignore_errors=True)
            shutil.rmtree(node.local_node_paths(aeron_dir).folder, ignore_errors=True)

    @contextmanager
    def on_another_node(self, name: str, **settings: Any) -> Iterator[Environment]:
        """Yield this environment on a further node: the disk is free of its recordings at the end."""
        with self.another_node(name, **settings) as other:
            yield replace(self, node=other, _recorded_streams={})

    @contextmanager
    def plain_recording(
        self, stream: int, messages: int, length: int, channel: str = CHANNEL
    ) -> Iterator[Callable[[], float]]:
        """Yield a function that lets plain Java publish these messages to a recording, and returns the seconds."""
        arguments = ("record", self.node.control_channel, channel, stream, messages, length)
        with self.java_program(*arguments) as request:
            yield lambda: float(request("go"))

    @contextmanager
    def java_program(self, *arguments: object) -> Iterator[Callable[[str], str]]:
        """Run one of the plain Java programs; yield a function that sends a line to it and returns its response."""
        command = [
            *JAVA_COMMAND, f"-Daeron.dir={self.node.aeron_dir}", "-cp", os.pathsep.join(classpath()), str(JAVA_SOURCE),
        ]  # fmt: skip
        process = subprocess.Popen(
            [*command, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        killer = threading.Timer(JAVA_TIMEOUT_S, process.kill)
        killer.daemon = True
        killer.start()
        assert process.stdin is not None
        assert process.stdout is not None

        def request(text: str) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            if text:
                process.stdin.write(f"{text}\n")
            response = process.stdout.readline().strip()
            if not response:
                moment = f"before it responded to {text!r}" if text else "before it was ready"
                raise RuntimeError(f"the plain Java program {arguments[0]} exited with {process.wait()} {moment}")
            return response

        try:
            assert request("") == "ready"
            yield request
        finally:
            killer.cancel()
            process.stdin.close()
            await_end(process)
            process.stdout.close()


@contextmanager
def benchmark_environment(*, quick: bool, rounds: int) -> Iterator[Environment]:
    """Start Spark and a node in a new folder, and remove everything at the end, which SIGTERM brings about, too."""
    import benchmarks
    from benchmarks import compared_sources

    signal.signal(signal.SIGTERM, _end_run)
    folder = Path(tempfile.mkdtemp(prefix="aeron-spark-bench-"))
    shared_memory = Path("/dev/shm")
    aeron_dir = (shared_memory if shared_memory.is_dir() else folder) / folder.name
    os.environ["AERON_SPARK_DATA_HOME"] = str(folder / "data")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # workers need not find this package
    cloudpickle.register_pickle_by_value(benchmarks)  # type: ignore[no-untyped-call]
    with ExitStack() as at_end:  # each call happens, also if one before it fails
        at_end.callback(shutil.rmtree, folder, ignore_errors=True)
        at_end.callback(shutil.rmtree, aeron_dir, ignore_errors=True)
        at_end.callback(node.stop, aeron_dir, force=True)
        try:
            spark = start_spark(folder, memory="1g" if quick else "3g")
            at_end.callback(stop_spark, spark)
            for source in compared_sources.ALL:
                spark.dataSource.register(source)
            with node.ensure(aeron_dir) as handle:
                yield Environment(spark, handle, folder, quick, rounds=rounds)
        except Exception:
            for log in folder.glob("data/**/node.log"):  # it may show the cause, and is deleted with the folder
                print(f"the node's log:\n{log.read_text()[-LOG_CHARACTERS:]}", file=sys.stderr)
            raise


def _end_run(number: int, _frame: FrameType | None) -> NoReturn:
    """Handle a signal: unlike Python's default, leaving the run by an exception ends its processes."""
    raise SystemExit(128 + number)


def start_spark(folder: Path, memory: str) -> SparkSession:
    """Return a new Spark session of two task slots."""
    settings = {
        "spark.driver.host": "127.0.0.1",  # in a network namespace the host's name has no address
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": memory,
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.log.level": "OFF",  # Spark logs an error for each query that is stopped
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraClassPath": f"{PEERS}/spark-kafka/*",  # Spark's Kafka source, if it was fetched
    }
    builder = SparkSession.builder.master("local[2]").appName("aeron-spark benchmarks")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def stop_spark(spark: SparkSession) -> None:
    """Stop the session and its JVM."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
