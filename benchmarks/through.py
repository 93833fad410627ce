"""Streams through a server, encrypted, against the direct route, plain Aeron and Spark's own floor."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from aeron_spark.keys.identity import ensure_identity
from aeron_spark.pool import POOL
from aeron_spark.protocol.keypair import public_text
from benchmarks.latency import EVERY, MESSAGES, micro_batches
from benchmarks.measure import Figure, ratio, seconds
from benchmarks.stage import CHANNEL, ROOT, Stage
from benchmarks.starting import LATER, as_json, in_a_process, task_of

PORT: Final = 21590  # data port; the control port is the next one
REPLAY_PORT: Final = 21592
LENGTH: Final = 1_300
ROWS: Final = 600_000
WARM_BATCHES: Final = 3
WARM_TURNS: Final = 5  # the JVMs of four processes compile what they run often: until then each turn is faster
MTU: Final = 1_408  # Aeron's own, and a row fits it: at 1,184 plain Aeron sends two packets for each
TERM: Final = "2m"  # the connection's
URI: Final = f"aeron:udp?endpoint=127.0.0.1:{REPLAY_PORT}"
LIKE: Final = f"{CHANNEL}?mtu={MTU}|term-length={TERM}"  # a replay has them from its recording, whatever its URI says


def run(stage: Stage) -> Iterator[Figure]:
    """Measure reading, writing, a small micro-batch, and a task's set-up."""
    with _server(stage) as options:
        count = 20_000 if stage.quick else ROWS
        frame = stage.spark.range(0, count, 1, 1).selectExpr(
            "id", f"cast(lpad(cast(id as string), {LENGTH}, 'x') as binary) value"
        )
        frame = frame.cache()
        assert frame.count() == count
        yield from _reading(stage, options, frame, count)
        yield from _writing(stage, options, frame, count)
        frame.unpersist(blocking=True)
        yield from _micro_batch(stage, options)
        yield _set_up(stage, options)


@contextmanager
def _server(stage: Stage) -> Iterator[Callable[..., dict[str, str]]]:
    """Run ``aeron-spark server`` on the stage's node; give what makes the options of a new stream of it."""
    folder = stage.work / "through"
    folder.mkdir()
    key = public_text(ensure_identity(folder / "server.key").public)
    ensure_identity(folder / "client.key")
    address = f"127.0.0.1:{PORT}:{PORT + 1}"
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "aeron_spark", "server", address, "--aeron-dir", stage.node.aeron_dir,
                "--identity", str(folder / "server.key"), "--ipc", "true", "--handshakes-per-second", "0",
                "--mtu", str(MTU), "--term-length", TERM,
            ],
            stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=os.environ,
        )  # fmt: skip
    late = threading.Timer(60.0, process.kill)
    late.start()
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("listening"):
                break
        late.cancel()
        base = {
            "server": address, "identity": str(folder / "client.key"), "serverKey": key,
            "aeronDir": stage.node.aeron_dir,
        }  # fmt: skip
        yield lambda **more: {
            **base,
            "stream": _stream(stage, base),
            **{name: str(value) for name, value in more.items()},
        }
    finally:
        late.cancel()
        process.terminate()
        process.wait(60)
        process.stdout.close()


def _stream(stage: Stage, base: dict[str, str]) -> str:
    """Create a new stream with the command line."""
    name = f"bench-{stage.new_stream()}"
    subprocess.run(
        [
            sys.executable, "-m", "aeron_spark", "streams", "create", name, "--partitions", "1", "--server",
            base["server"], "--option", f"identity={base['identity']}", "--option", f"serverKey={base['serverKey']}",
            "--option", f"aeronDir={base['aeronDir']}",
        ],
        check=True, stdout=subprocess.DEVNULL, timeout=120, cwd=ROOT,
    )  # fmt: skip
    return name


def _read(stage: Stage, options: dict[str, str]) -> float:
    frame: Any = stage.spark.read.format("aeron").options(**options).load()
    return seconds(lambda: frame.write.format("noop").mode("overwrite").save())


def _save(frame: Any, options: dict[str, str]) -> float:
    return seconds(lambda: frame.write.format("aeron").options(**options).mode("append").save())


def _reading(stage: Stage, options: Callable[..., dict[str, str]], frame: Any, count: int) -> Iterator[Figure]:
    for payload in ("raw", "arrow"):
        through, stream = options(), stage.new_stream()
        rows = frame.select("value") if payload == "raw" else frame
        _save(rows, {**through, "payload": payload})
        direct = stage.options(stream)
        _save(rows, {**direct, "payload": payload, "record": "auto", "ack": "archive"})
        taken = stage.turns(
            {
                "through": lambda through=through, payload=payload: _read(stage, {**through, "payload": payload}),  # type: ignore[misc]
                "direct": lambda direct=direct, payload=payload: _read(stage, {**direct, "payload": payload}),  # type: ignore[misc]
            },
            warm=WARM_TURNS,
        )
        yield _figure(
            f"through a server, read {payload} over IPC, {LENGTH} B", "of the direct route", ">= 0.5", count, taken
        )
        if payload == "raw":
            yield _udp(stage, through, count)


def _udp(stage: Stage, through: dict[str, str], count: int) -> Figure:
    plain = stage.new_stream()
    own = {**through, "payload": "raw", "ipc": "never"}
    with stage.plain_recording(plain, count, LENGTH, LIKE) as publish:
        publish()
    with stage.java("replay", stage.node.control_channel, plain, URI, plain + 100_000) as say:
        taken = stage.turns(
            {"through": lambda: _read(stage, own), "plain replay": lambda: float(say("go"))}, warm=WARM_TURNS
        )
    return _figure(
        f"through a server, read raw over loopback UDP, {LENGTH} B", "of a plain Aeron replay", ">= 0.8", count, taken
    )


def _writing(stage: Stage, options: Callable[..., dict[str, str]], frame: Any, count: int) -> Iterator[Figure]:
    through = options(payload="arrow")
    direct = stage.options(stage.new_stream(), payload="arrow", ack="archive", record="auto")
    taken = stage.turns(
        {"through": lambda: _save(frame, through), "direct": lambda: _save(frame, direct)}, warm=WARM_TURNS
    )
    yield _figure(
        f"through a server, write arrow exactly once, {LENGTH} B", "of the direct sink", ">= 0.5", count, taken
    )


def _figure(name: str, peer: str, target: str, rows: int, taken: dict[str, list[float]]) -> Figure:
    rates = {who: [rows / one for one in times] for who, times in taken.items()}
    own, other = rates
    medians = ", ".join(f"{who} {statistics.median(found) * LENGTH / 1e6:.0f} MB/s" for who, found in rates.items())
    return Figure(name, ratio(rates[own], rates[other]), peer, target, medians, rates)


def _micro_batch(stage: Stage, options: Callable[..., dict[str, str]]) -> Iterator[Figure]:
    """A few rows from a stream of the server to another one, against a trivial source and a sink that does nothing."""
    source, target = options(), options()
    _save(_few(stage), {**source, "payload": "raw"})
    ticks = stage.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", MESSAGES).load()
    feed = (
        ticks.selectExpr("cast(lpad(cast(value as string), 100, 'x') as binary) value")
        .writeStream.format("aeron").options(**source, payload="raw")
        .option("checkpointLocation", str(stage.work / "feed")).trigger(processingTime=f"{EVERY} milliseconds").start()
    )  # fmt: skip
    trivial = {"rows": str(MESSAGES), "batch": str(MESSAGES), "length": "100", "every": str(EVERY)}

    def median_of(name: str, given: dict[str, str], sink: str, sunk: dict[str, str]) -> float:
        found = micro_batches(stage, name, given, sink=sink, sunk=sunk)
        return statistics.median(one["triggerExecution"] for one in found)

    try:
        taken = stage.turns(
            {
                "through": lambda: median_of(
                    "aeron", {**source, "payload": "raw"}, "aeron", {**target, "payload": "raw"}
                ),
                "floor": lambda: median_of("prebuilt", trivial, "discard", {}),
            }
        )
    finally:
        feed.stop()
    yield Figure(
        "through a server, micro-batch from stream to stream",
        ratio(taken["through"], taken["floor"]),
        "times Spark's own floor",
        "<= 1.5",
        f"{statistics.median(taken['through']):.0f} ms, the floor {statistics.median(taken['floor']):.0f} ms",
        taken,
    )


def _set_up(stage: Stage, options: Callable[..., dict[str, str]]) -> Figure:
    """How soon a task has its first rows over the connection that an earlier task of its process has made."""
    through = {**options(), "payload": "raw"}
    _save(_few(stage), through)
    try:
        ranges = [as_json(one) for one in task_of(through).stream().whole()]
    finally:
        POOL.close()
    runs = [in_a_process(through, ranges, 3 if stage.quick else LATER) for _ in range(stage.rounds)]
    millis = [one * 1000 for run in runs for one in run[1:]]
    firsts = [run[0] for run in runs]
    return Figure(
        "through a server, a task over a connection that is there",
        statistics.median(millis),
        "ms",
        "<= 20",
        f"to its first rows, median of {len(millis)}, the longest {max(millis):.0f} ms; the first task of a process, "
        f"with JVM and handshake, {statistics.median(firsts):.2f} s",
        {"milliseconds": millis, "first seconds": firsts},
    )


def _few(stage: Stage) -> Any:
    return stage.spark.range(0, MESSAGES, 1, 1).selectExpr("cast(lpad(cast(id as string), 100, 'x') as binary) value")
