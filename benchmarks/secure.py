"""The secure endpoint: against the same path without the cipher, against plain Aeron, and against the clock."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import psutil

from aeron_spark.node import NodeHandle
from aeron_spark.transport.api import LINK_TERM_BYTES, MTU_BYTES
from benchmarks.measure import Figure, ratio, take_turns
from benchmarks.stage import ROOT, Stage

PORTS: Final = 21500  # the first of those the servers listen on, two each
PLAIN_PORT: Final = 21490
MEDIA: Final = {"udp": "loopback UDP", "ipc": "IPC"}
TIMEOUT: Final = 300.0  # seconds for all that an end is asked to do
LARGE: Final = 64 * 1024
MEGABYTES: Final = {"udp": 64, "ipc": 512}  # of a turn: about half a second
OFTEN: Final = 3  # turns for each round, because they are short
PEERS: Final = {"not encrypted": "the same path without the cipher", "plain": "a plain publication"}
SMALL: Final = 200
SMALL_MESSAGES: Final = 300_000  # of a turn
PINGS: Final = 2_000
PAUSE: Final = 0.005  # seconds between two pings: the connection is idle
IDLE_SECONDS: Final = 3.0
BUSY_CORES: Final = 4  # with fewer, two ends that spin would leave the media driver none
HANDSHAKES: Final = 100  # of a turn
WARM_HANDSHAKES: Final = 400  # before them: four JVMs compile what they run often
AT_ONCE: Final = 8
# Driver threads that take each command at once. Names of hosts would hold them up; here all are addresses.
NAMELESS: Final = {"aeron.driver.async.executor.enabled": "false"}
TICK: Final = 0.01  # seconds: what the system counts another process's time in
SIDES: Final = {"server": "server's process", "driver": "server's media driver"}

Say = Callable[..., Any]


def run(stage: Stage) -> Iterator[Figure]:
    """Measure throughput, small messages, round trips and handshakes."""
    for part in (throughput, small, pings, handshakes):
        yield from part(stage)


def throughput(stage: Stage) -> Iterator[Figure]:
    """Yield ratios of 64 KiB messages, encrypted and not encrypted, and by a plain publication of the same process."""
    with _ends(stage) as (_, client):
        for media, where in MEDIA.items():
            count = 20 if stage.quick else MEGABYTES[media] * 2**20 // LARGE
            client("connect", name=f"encrypted {media}", media=media)
            client("connect", name=f"bare {media}", media=media, bare=True)
            with _plain(stage, client, media) as plain:
                cases = {
                    "encrypted": partial(client, "send", name=f"encrypted {media}", size=LARGE, count=count),
                    "not encrypted": partial(client, "send", name=f"bare {media}", size=LARGE, count=count),
                    "plain": partial(plain, LARGE, count),
                }
                taken = take_turns(
                    cases, rounds=1 if stage.quick else OFTEN * stage.rounds, warm=0 if stage.quick else OFTEN
                )
            rates = {who: [count * LARGE / 1e6 / one for one in times] for who, times in taken.items()}
            medians = ", ".join(f"{who} {statistics.median(found):.0f} MB/s" for who, found in rates.items())
            for peer, target in (("not encrypted", ">= 0.8"), ("plain", ">= 0.6")):
                yield Figure(
                    f"secure, 64 KiB messages over {where}, against {PEERS[peer]}",
                    ratio(rates["encrypted"], rates[peer]),
                    "of its throughput",
                    target if media == "udp" else "",
                    medians,
                    {who: rates[who] for who in ("encrypted", peer)},
                )


def small(stage: Stage) -> Iterator[Figure]:
    """200-byte messages by ``send_many``: how many a core sends, and how many a core receives.

    By the processor time of each process, all its threads together, so that the other one and the driver do not count.
    """
    with _ends(stage) as (server, client):
        for media, where in MEDIA.items():
            client("connect", name=media, media=media)
            found: dict[str, list[float]] = {"sender": [], "receiver": [], "time": []}
            for turn in range(1 if stage.quick else 2 + stage.rounds):
                count = 10_000 if stage.quick else SMALL_MESSAGES
                before = client("cpu"), server("cpu")
                took = float(client("send_many", name=media, size=SMALL, count=count))
                spent = client("cpu") - before[0], server("cpu") - before[1], took
                if turn >= 2 or stage.quick:
                    for who, seconds in zip(found, spent, strict=True):
                        found[who].append(count / 1e3 / seconds)
            speed = {who: statistics.median(rates) for who, rates in found.items()}
            slower = min(("sender", "receiver"), key=lambda who: speed[who])
            yield Figure(
                f"secure, {SMALL} B messages by send_many over {where}",
                speed[slower],
                f"thousand a second of one core by the {slower}",
                ">= 300" if media == "udp" else "",
                f"{speed['sender']:.0f} by the sender, {speed['receiver']:.0f} by the receiver; {speed['time']:.0f} "
                "thousand a second with both and the driver on these cores",
                found,
            )


def pings(stage: Stage) -> Iterator[Figure]:
    """Round trips of an idle connection, and what waiting for them costs: the ends', and their media driver's way."""
    both = (os.cpu_count() or 1) >= BUSY_CORES
    for idle, target in (("busy-spin", "<= 1"), ("backoff", "")):
        with (
            _driver_for(stage, idle) as at,
            end_of("server", at, PORTS, idle if both else "backoff"),
            end_of("client", at, PORTS, idle) as client,
        ):
            count = 20 if stage.quick else PINGS
            client("connect", name=idle, media="udp")
            client("ping", name=idle, count=count)  # warm
            before = client("cpu")
            time.sleep(0.2 if stage.quick else IDLE_SECONDS)
            busy = (client("cpu") - before) / (0.2 if stage.quick else IDLE_SECONDS)
            millis = sorted(1e3 * one for one in client("ping", name=idle, count=count, pause=PAUSE))
        alone = "" if both or idle == "backoff" else "; at the client alone, for there are too few cores for both"
        yield Figure(
            f"secure, ping over loopback UDP, idle={idle}",
            statistics.median(millis),
            "ms",
            target,
            f"median of {count}, p99 {millis[int(0.99 * count)]:.2f} ms; an idle client takes {100 * busy:.0f} % of a "
            f"core{'; the default' if idle == 'backoff' else ''}{alone}",
            {"milliseconds": millis},
        )


def handshakes(stage: Stage) -> Iterator[Figure]:
    """How long one takes, and how many the server's process and media driver can take in a second of one core.

    The clients have a media driver of their own, so that what the server's side takes can be told apart.
    """
    with stage.node_beside("clients") as theirs:
        made = _shake_hands(stage, stage.node, theirs)
    speed = {who: statistics.median(made[who]) for who in SIDES}
    slower = min(speed, key=lambda who: speed[who])
    yield Figure(
        "secure, handshakes of one core, closing included",
        speed[slower],
        f"a second by the {SIDES[slower]}",
        ">= 100",
        f"{speed['server']:.0f} by the server's process, {speed['driver']:.0f} by its media driver; {AT_ONCE} clients "
        f"at once, on the same cores, made {statistics.median(made['time']):.0f} a second",
        {who: made[who] for who in (*SIDES, "time")},
    )
    yield _handshake("secure, handshake over loopback UDP", "", made["milliseconds"])
    with (
        stage.node_beside("server", properties=NAMELESS) as ours,
        stage.node_beside("clients", properties=NAMELESS) as theirs,
    ):
        made = _shake_hands(stage, ours, theirs)
    yield _handshake("secure, handshake, media drivers without a resolver", "<= 30", made["milliseconds"])


def _handshake(name: str, target: str, millis: list[float]) -> Figure:
    shown = f"median of {len(millis)} one after the other, the longest {max(millis):.0f} ms"
    return Figure(
        name,
        statistics.median(millis),
        "ms",
        target,
        f"{shown}; cookie and link included",
        {"milliseconds": millis},
    )


def _shake_hands(stage: Stage, ours: NodeHandle, theirs: NodeHandle) -> dict[str, list[float]]:
    """Connect and close: the milliseconds of each alone, and the rates of ``AT_ONCE`` by each side's processor time."""
    count = 8 if stage.quick else HANDSHAKES
    found: dict[str, list[float]] = {"milliseconds": [], "server": [], "driver": [], "time": []}
    with end_of("server", ours.aeron_dir, PORTS) as server, end_of("client", theirs.aeron_dir, PORTS) as client:
        driver = psutil.Process(ours.pid)
        client("handshakes", media="udp", count=count if stage.quick else WARM_HANDSHAKES, at_once=AT_ONCE)
        for _ in range(stage.rounds):
            alone = client("handshakes", media="udp", count=max(2, count // 5), at_once=1)
            before, begun = (server("cpu"), cpu_of(driver)), time.perf_counter()
            made = client("handshakes", media="udp", count=count, at_once=AT_ONCE)
            for failed in alone["failed"] + made["failed"]:
                raise RuntimeError(f"a handshake failed: {failed}")
            found["milliseconds"] += [1e3 * one for one in alone["seconds"]]
            found["time"].append(count / (time.perf_counter() - begun))
            found["server"].append(count / (server("cpu") - before[0]))
            found["driver"].append(count / max(TICK, cpu_of(driver) - before[1]))
    return found


def cpu_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def _plain(stage: Stage, client: Say, media: str) -> Iterator[Callable[[int, int], float]]:
    """A plain publication of the client's process with a connection's own parameters, and plain Java at its end."""
    stream = stage.new_stream()
    there = f"aeron:udp?endpoint=127.0.0.1:{PLAIN_PORT}|" if media == "udp" else "aeron:ipc?"
    tuned = f"term-length={LINK_TERM_BYTES}|mtu={MTU_BYTES}|sparse=true"

    def publish(size: int, count: int) -> float:
        begun = time.perf_counter()
        sending = threading.Thread(target=lambda: client("offer", name=media, size=size, count=count))
        sending.start()
        say(str(count))
        sending.join()
        return time.perf_counter() - begun

    with stage.java("count", there.rstrip("?|"), stream) as say:
        assert client("publish", name=media, channel=there + tuned, stream=stream)
        yield publish


@contextmanager
def _ends(stage: Stage) -> Iterator[tuple[Say, Say]]:
    """A server and a client, each in a process of its own."""
    at = stage.node.aeron_dir
    with end_of("server", at, PORTS) as server, end_of("client", at, PORTS) as client:
        yield server, client


@contextmanager
def _driver_for(stage: Stage, idle: str) -> Iterator[str]:
    """The stage's media driver; or, for ends that spin, one that does not sleep either, but gives its core up."""
    if idle == "backoff":
        yield stage.node.aeron_dir
        return
    ways = ("shared", "sharednetwork", "conductor", "sender", "receiver")
    with stage.node_beside("spinning", properties={f"aeron.{way}.idle.strategy": "yield" for way in ways}) as other:
        yield other.aeron_dir


@contextmanager
def end_of(*arguments: object) -> Iterator[Say]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.secure_ends", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    late = threading.Timer(TIMEOUT, process.kill)
    late.daemon = True
    late.start()
    assert process.stdin is not None
    assert process.stdout is not None
    to, answers = process.stdin, process.stdout

    def say(do: str, **given: object) -> Any:
        if do:
            to.write(json.dumps({"do": do, **given}) + "\n")
            to.flush()
        answer = answers.readline()
        if not answer:
            raise RuntimeError(f"the {arguments[0]} ended with {process.wait()}, asked to {do}")
        return json.loads(answer)

    try:
        assert say("") == "ready"
        yield say
    finally:
        late.cancel()
        to.close()
        process.wait(TIMEOUT)
        answers.close()
