"""The stage of a run: a node of its own, a Spark session, plain Java programs; and nothing of it afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from aeron_spark import node
from aeron_spark.aeron.jvm import classpath
from aeron_spark.node import NodeHandle
from benchmarks.measure import take_turns

CHANNEL: Final = "aeron:ipc"
ROOT: Final = Path(__file__).resolve().parents[1]
PEERS: Final = Path(__file__).with_name("java") / "Peers.java"
JAVA: Final = (
    "java",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "-XX:+UseSerialGC",
    "-Dagrona.disable.bounds.checks=true",
)
JAVA_TIMEOUT: Final = 300.0  # seconds for a Java program to do its part


@dataclass
class Stage:
    """What every benchmark works with. ``quick`` asks for tiny sizes, whose figures mean nothing."""

    spark: SparkSession
    node: NodeHandle
    work: Path
    quick: bool
    streams: int = 1000
    rounds: int = 5
    _filled: dict[tuple[int, int], int] = field(default_factory=dict)

    def turns(self, cases: Mapping[str, Callable[[], float]], *, warm: int = 1) -> dict[str, list[float]]:
        """Run the cases as often as this run asks for; see :func:`benchmarks.measure.take_turns`."""
        return take_turns(cases, rounds=self.rounds, warm=0 if self.quick else warm)

    def new_stream(self) -> int:
        """Return an unused stream id."""
        self.streams += 1
        return self.streams

    def options(self, stream: int, **more: object) -> dict[str, str]:
        """Return the connector's options for a stream of this stage."""
        given = {"channel": CHANNEL, "streamId": stream, "aeronDir": self.node.aeron_dir, **more}
        return {name: str(value) for name, value in given.items()}

    def batch(self, stream: int, **more: object) -> DataFrame:
        """Return a stream's recordings as a batch."""
        return self.spark.read.format("aeron").options(**self.options(stream, payload="raw", **more)).load()

    def filled(self, messages: int, length: int) -> int:
        """Return a stream with one recording of that many messages, made on first use by a plain Java publisher."""
        key = (messages, length)
        if key not in self._filled:
            stream = self.new_stream()
            with self.plain_recording(stream, messages, length) as publish:
                publish()
            self._filled[key] = stream
        return self._filled[key]

    @contextmanager
    def node_beside(self, name: str, **settings: Any) -> Iterator[NodeHandle]:
        """Run another node beside this stage's; nothing of it is left afterwards."""
        aeron_dir = f"{self.node.aeron_dir}-{name}"
        try:
            with node.ensure(aeron_dir, **settings) as other:
                yield other
        finally:
            node.stop(aeron_dir, force=True)
            shutil.rmtree(aeron_dir, ignore_errors=True)

    @contextmanager
    def plain_recording(
        self, stream: int, messages: int, length: int, channel: str = CHANNEL
    ) -> Iterator[Callable[[], float]]:
        """Give what lets plain Java publish that many messages to a recording, and returns the seconds it took."""
        arguments = ("record", self.node.control_channel, channel, stream, messages, length)
        with self.java(*arguments) as say:
            yield lambda: float(say("go"))

    @contextmanager
    def java(self, *arguments: object) -> Iterator[Callable[[str], str]]:
        """Run one of the plain Java programs; give what says a line to it and returns its answer."""
        command = [*JAVA, f"-Daeron.dir={self.node.aeron_dir}", "-cp", os.pathsep.join(classpath()), str(PEERS)]
        process = subprocess.Popen(
            [*command, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        late = threading.Timer(JAVA_TIMEOUT, process.kill)
        late.daemon = True
        late.start()
        assert process.stdin is not None
        assert process.stdout is not None

        def say(text: str) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            if text:
                process.stdin.write(f"{text}\n")
            answer = process.stdout.readline().strip()
            if not answer:
                raise RuntimeError(f"the plain Java program {arguments[0]} ended with {process.wait()}")
            return answer

        try:
            assert say("") == "ready"
            yield say
        finally:
            late.cancel()
            process.stdin.close()
            process.wait(JAVA_TIMEOUT)
            process.stdout.close()


@contextmanager
def stage(*, quick: bool, rounds: int) -> Iterator[Stage]:
    """Set everything up, and remove it in the end."""
    import benchmarks
    from benchmarks import peers

    work = Path(tempfile.mkdtemp(prefix="aeron-spark-bench-"))
    shared_memory = Path("/dev/shm")
    aeron_dir = (shared_memory if shared_memory.is_dir() else work) / work.name
    os.environ["AERON_SPARK_DATA_HOME"] = str(work / "data")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # workers need not find this package
    cloudpickle.register_pickle_by_value(benchmarks)  # type: ignore[no-untyped-call]
    spark: Any = None
    try:
        spark = session(work, memory="1g" if quick else "3g")
        for source in (peers.Prebuilt, peers.Discard):
            spark.dataSource.register(source)
        with node.ensure(aeron_dir) as used:
            yield Stage(spark, used, work, quick, rounds=rounds)
    except Exception:
        for log in work.glob("data/**/node.log"):  # it goes with the rest, and may say why
            print(f"the node's log:\n{log.read_text()[-4000:]}", file=sys.stderr)
        raise
    finally:
        if spark is not None:
            end(spark)
        node.stop(aeron_dir, force=True)
        shutil.rmtree(aeron_dir, ignore_errors=True)
        shutil.rmtree(work, ignore_errors=True)


def session(work: Path, memory: str) -> SparkSession:
    """Return a new Spark session of two task slots."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": memory,
        "spark.local.dir": str(work / "spark"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.log.level": "OFF",  # a query that is stopped would be called an error
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("aeron-spark benchmarks")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def end(spark: SparkSession) -> None:
    """Stop the session, and the JVM it runs in."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
