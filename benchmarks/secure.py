"""Measures the secure endpoint, compared with the same code without the cipher and with plain Aeron."""

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
from benchmarks.environment import Environment
from benchmarks.measure import ROOT, Figure, cpu_seconds
from benchmarks.samples import median_ratio
from benchmarks.turns import take_turns

FIRST_PORT: Final = 21500  # data port of the server; the control port is the next one
PLAIN_PORT: Final = 21490
MEDIA: Final = {"udp": "loopback UDP", "ipc": "IPC"}
TIMEOUT_S: Final = 300.0  # for all requests to an endpoint's process
LARGE_BYTES: Final = 64 * 1024
TURN_MIB: Final = {"udp": 64, "ipc": 512}  # sent in one turn: about half a second
TURNS_PER_ROUND: Final = 3  # because turns are short
COMPARED: Final = {"not encrypted": "the same code without the cipher", "plain": "a plain publication"}
SMALL_BYTES: Final = 200
SMALL_MESSAGES: Final = 300_000  # of a turn
PINGS: Final = 2_000
PING_INTERVAL_S: Final = 0.005  # so that the connection is idle before each ping
IDLE_S: Final = 3.0
SPINNING_CORES: Final = 4  # with fewer, two spinning endpoints would leave none to the media driver
HANDSHAKES: Final = 100  # of a turn
WARM_HANDSHAKES: Final = 400  # before the first turn: four JVMs compile frequent code
CONCURRENT: Final = 8
# The driver then executes each command at once. Host names would block it; here all channels have addresses.
WITHOUT_RESOLVER: Final = {"aeron.driver.async.executor.enabled": "false"}
CPU_CLOCK_S: Final = 0.01  # resolution of another process's processor time
SERVER_PROCESSES: Final = {"server": "server's process", "driver": "server's media driver"}

Request = Callable[..., Any]  # calls a method of an endpoint's process, and returns its result


def run(env: Environment) -> Iterator[Figure]:
    """Measure throughput, small messages, round trips and handshakes."""
    for measure in (measure_throughput, measure_small_messages, measure_pings, measure_handshakes):
        yield from measure(env)


def measure_throughput(env: Environment) -> Iterator[Figure]:
    """Send 64 KiB messages, encrypted and not encrypted, and with a plain publication of the same process."""
    with _server_and_client(env) as (_, client):
        for media, shown_media in MEDIA.items():
            count = 20 if env.quick else TURN_MIB[media] * 2**20 // LARGE_BYTES
            client("connect", name=f"encrypted {media}", media=media)
            client("connect", name=f"unencrypted {media}", media=media, encrypted=False)
            with _plain_publication(env, client, media) as publish:
                cases = {
                    "encrypted": partial(client, "send", name=f"encrypted {media}", size=LARGE_BYTES, count=count),
                    "not encrypted": partial(
                        client, "send", name=f"unencrypted {media}", size=LARGE_BYTES, count=count
                    ),
                    "plain": partial(publish, LARGE_BYTES, count),
                }
                durations = take_turns(
                    cases,
                    rounds=1 if env.quick else TURNS_PER_ROUND * env.rounds,
                    warm=0 if env.quick else TURNS_PER_ROUND,
                )
            rates = {
                program: [count * LARGE_BYTES / 1e6 / seconds for seconds in samples]
                for program, samples in durations.items()
            }
            medians = ", ".join(
                f"{program} {statistics.median(samples):.0f} MB/s" for program, samples in rates.items()
            )
            for compared, target in (("not encrypted", ">= 0.8"), ("plain", ">= 0.6")):
                yield Figure(
                    f"secure, 64 KiB messages over {shown_media}, against {COMPARED[compared]}",
                    median_ratio(rates["encrypted"], rates[compared]),
                    "of its throughput",
                    target if media == "udp" else "",
                    medians,
                    {program: rates[program] for program in ("encrypted", compared)},
                )


def measure_small_messages(env: Environment) -> Iterator[Figure]:
    """Send 200-byte messages with ``send_many``: messages that one core sends, and that one core receives.

    The rates use the processor time of each process with all its threads, so that the other process and the media
    driver do not count.
    """
    with _server_and_client(env) as (server, client):
        for media, shown_media in MEDIA.items():
            client("connect", name=media, media=media)
            rates: dict[str, list[float]] = {"sender": [], "receiver": [], "clock": []}
            for turn in range(1 if env.quick else 2 + env.rounds):
                count = 10_000 if env.quick else SMALL_MESSAGES
                before = client("cpu"), server("cpu")
                clock = float(client("send_many", name=media, size=SMALL_BYTES, count=count))
                used = client("cpu") - before[0], server("cpu") - before[1], clock
                if turn >= 2 or env.quick:
                    for process, seconds in zip(rates, used, strict=True):
                        rates[process].append(count / 1e3 / seconds)
            medians = {process: statistics.median(samples) for process, samples in rates.items()}
            slower = min(("sender", "receiver"), key=lambda process: medians[process])
            yield Figure(
                f"secure, {SMALL_BYTES} B messages by send_many over {shown_media}",
                medians[slower],
                f"thousand a second of one core by the {slower}",
                ">= 300" if media == "udp" else "",
                f"{medians['sender']:.0f} by the sender, {medians['receiver']:.0f} by the receiver; "
                f"{medians['clock']:.0f} thousand a second by the clock, with both and the driver on these cores",
                rates,
            )


def measure_pings(env: Environment) -> Iterator[Figure]:
    """Measure round trips of an idle connection, and the processor time of an idle client, for both idle strategies."""
    both_spin = (os.cpu_count() or 1) >= SPINNING_CORES
    for idle, target in (("busy-spin", "<= 1"), ("backoff", "")):
        with (
            _driver_for(env, idle) as aeron_dir,
            run_endpoint("server", aeron_dir, FIRST_PORT, idle if both_spin else "backoff"),
            run_endpoint("client", aeron_dir, FIRST_PORT, idle) as client,
        ):
            count = 20 if env.quick else PINGS
            client("connect", name=idle, media="udp")
            client("ping", name=idle, count=count)  # warm
            before = client("cpu")
            time.sleep(0.2 if env.quick else IDLE_S)
            busy = (client("cpu") - before) / (0.2 if env.quick else IDLE_S)
            seconds = client("ping", name=idle, count=count, interval_s=PING_INTERVAL_S)
            millis = sorted(1e3 * round_trip for round_trip in seconds)
        only_client = "" if both_spin or idle == "backoff" else "; only the client spins: too few cores for both"
        yield Figure(
            f"secure, ping over loopback UDP, idle={idle}",
            statistics.median(millis),
            "ms",
            target,
            f"median of {count}, p99 {millis[int(0.99 * count)]:.2f} ms; an idle client takes {100 * busy:.0f} % of a "
            f"core{'; the default' if idle == 'backoff' else ''}{only_client}",
            {"milliseconds": millis},
        )


def measure_handshakes(env: Environment) -> Iterator[Figure]:
    """Measure the duration of a handshake, and the handshakes per second of one core of the server's processes.

    The clients use another media driver, so that the processor time of the server's media driver is known.
    """
    with env.another_node("clients") as client_node:
        samples = _run_handshakes(env, env.node, client_node)
    rates = {process: statistics.median(samples[process]) for process in SERVER_PROCESSES}
    slower = min(rates, key=lambda process: rates[process])
    yield Figure(
        "secure, handshakes of one core, closing included",
        rates[slower],
        f"a second by the {SERVER_PROCESSES[slower]}",
        ">= 100",
        f"{rates['server']:.0f} by the server's process, {rates['driver']:.0f} by its media driver; {CONCURRENT} "
        f"concurrent clients on the same cores made {statistics.median(samples['clock']):.0f} a second by the clock",
        {process: samples[process] for process in (*SERVER_PROCESSES, "clock")},
    )
    yield _handshake_figure("secure, handshake over loopback UDP", "", samples["milliseconds"])
    with (
        env.another_node("server", properties=WITHOUT_RESOLVER) as server_node,
        env.another_node("clients", properties=WITHOUT_RESOLVER) as client_node,
    ):
        samples = _run_handshakes(env, server_node, client_node)
    yield _handshake_figure("secure, handshake, media drivers without a resolver", "<= 30", samples["milliseconds"])


def _handshake_figure(name: str, target: str, millis: list[float]) -> Figure:
    return Figure(
        name,
        statistics.median(millis),
        "ms",
        target,
        f"median of {len(millis)} one after the other, the longest {max(millis):.0f} ms; cookie and link included",
        {"milliseconds": millis},
    )


def _run_handshakes(env: Environment, server_node: NodeHandle, client_node: NodeHandle) -> dict[str, list[float]]:
    """Connect and close clients.

    Return the milliseconds of single handshakes, and the rates of ``CONCURRENT`` clients by each process's time.
    """
    count = 8 if env.quick else HANDSHAKES
    samples: dict[str, list[float]] = {"milliseconds": [], "server": [], "driver": [], "clock": []}
    with (
        run_endpoint("server", server_node.aeron_dir, FIRST_PORT) as server,
        run_endpoint("client", client_node.aeron_dir, FIRST_PORT) as client,
    ):
        driver = psutil.Process(server_node.pid)
        client("handshakes", media="udp", count=count if env.quick else WARM_HANDSHAKES, concurrent=CONCURRENT)
        for _ in range(env.rounds):
            single = client("handshakes", media="udp", count=max(2, count // 5), concurrent=1)
            before, started = (server("cpu"), cpu_seconds(driver)), time.perf_counter()
            concurrent = client("handshakes", media="udp", count=count, concurrent=CONCURRENT)
            for error in single["errors"] + concurrent["errors"]:
                raise RuntimeError(f"a handshake failed: {error}")
            samples["milliseconds"] += [1e3 * seconds for seconds in single["seconds"]]
            samples["clock"].append(count / (time.perf_counter() - started))
            samples["server"].append(count / (server("cpu") - before[0]))
            samples["driver"].append(count / max(CPU_CLOCK_S, cpu_seconds(driver) - before[1]))
    return samples


@contextmanager
def _plain_publication(env: Environment, client: Request, media: str) -> Iterator[Callable[[int, int], float]]:
    """Open a plain publication in the client's process, with a connection's parameters and a plain Java subscriber.

    Yield a function that publishes messages, and returns the seconds until the subscriber has them all.
    """
    stream = env.new_stream_id()
    channel = f"aeron:udp?endpoint=127.0.0.1:{PLAIN_PORT}|" if media == "udp" else "aeron:ipc?"
    parameters = f"term-length={LINK_TERM_BYTES}|mtu={MTU_BYTES}|sparse=true"

    def publish(size: int, count: int) -> float:
        started = time.perf_counter()
        sender = threading.Thread(target=lambda: client("offer", name=media, size=size, count=count))
        sender.start()
        await_count(str(count))
        sender.join()
        return time.perf_counter() - started

    with env.java_program("count", channel.rstrip("?|"), stream) as await_count:
        assert client("publish", name=media, channel=channel + parameters, stream=stream)
        yield publish


@contextmanager
def _server_and_client(env: Environment) -> Iterator[tuple[Request, Request]]:
    """Run a server and a client, each in a separate process."""
    aeron_dir = env.node.aeron_dir
    with (
        run_endpoint("server", aeron_dir, FIRST_PORT) as server,
        run_endpoint("client", aeron_dir, FIRST_PORT) as client,
    ):
        yield server, client


@contextmanager
def _driver_for(env: Environment, idle: str) -> Iterator[str]:
    """Yield the folder of the node's media driver; for spinning endpoints, of one that yields instead of sleeping."""
    if idle == "backoff":
        yield env.node.aeron_dir
        return
    agents = ("shared", "sharednetwork", "conductor", "sender", "receiver")
    properties = {f"aeron.{agent}.idle.strategy": "yield" for agent in agents}
    with env.another_node("spinning", properties=properties) as spinning_node:
        yield spinning_node.aeron_dir


@contextmanager
def run_endpoint(*arguments: object) -> Iterator[Request]:
    """Run ``benchmarks.secure_endpoints`` with these arguments; yield a function that calls one of its methods."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.secure_endpoints", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    killer = threading.Timer(TIMEOUT_S, process.kill)
    killer.daemon = True
    killer.start()
    assert process.stdin is not None
    assert process.stdout is not None
    requests, responses = process.stdin, process.stdout

    def request(method: str, **method_arguments: object) -> Any:
        if method:
            requests.write(json.dumps({"method": method, **method_arguments}) + "\n")
            requests.flush()
        response = responses.readline()
        if not response:
            moment = f"before it responded to {method!r}" if method else "before it was ready"
            raise RuntimeError(
                f"the {arguments[0]} process exited with {process.wait()} {moment} (it is killed after {TIMEOUT_S:g} s)"
            )
        return json.loads(response)

    try:
        assert request("") == "ready"
        yield request
    finally:
        killer.cancel()
        requests.close()
        process.wait(TIMEOUT_S)
        responses.close()
