"""Compares the route through a server, by its default settings over UDP, with Kafka over mutual TLS.

The default between two programs of one machine is shared memory, which is shown beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from benchmarks.checks import DataMismatchError, Totals, check, totals_of_frame
from benchmarks.comparison import MEGABYTE, Program, compare
from benchmarks.corpora import CORPORA, chosen_names
from benchmarks.datasets import drain, kafka_options, load
from benchmarks.environment import Environment
from benchmarks.kafka.broker import Broker, run_broker
from benchmarks.kafka.settings import DEFAULT, EXACTLY_ONCE_WRITING, TUNED_READING, settings_text
from benchmarks.measure import Figure
from benchmarks.secure_server import SecureServer, run_server
from benchmarks.sinks import Sink, cached_frame

BYTES: Final = 500e6  # of a turn; the turns of writing one size stay on disk until its end
SIZES: Final = ("180 B", "1,000 B")
WARM_TURNS: Final = 5  # the JVMs of five processes compile frequent code: each of these turns is faster than the last
TUNED: Final = "Kafka over mutual TLS, tuned"
OWN: Final = "aeron-spark through a server"
OWN_SETTINGS: Final = "mtu=auto, defaults; ipc=never, so that packets are UDP"
SHARED: Final = "aeron-spark through a server, shared memory"
SHARED_SETTINGS: Final = "defaults"
ONE_TASK: Final = "aeron-spark, one task"


@dataclass(frozen=True, slots=True)
class Network:
    """A network with its name for the report, and the bar of each workload. A workload without a bar is left out."""

    name: str
    read: str
    two_tasks: str = ""
    write: str = ""


LOOPBACK: Final = Network("loopback", read=">= 1.5", two_tasks=">= 1.0", write=">= 1.5")
ETHERNET: Final = Network("a network with an MTU of 1,500", read=">= 1.0")


def run(env: Environment) -> Iterator[Figure]:
    """Read and write each size over the loopback interface of this machine."""
    yield from run_on(env, LOOPBACK)


def run_on(env: Environment, network: Network) -> Iterator[Figure]:
    """Run the workloads with each size over the loopback interface, which has the MTU of ``network``."""
    for number, name in enumerate(chosen_names(SIZES, quick=env.quick)):
        corpus = CORPORA[name].of_rows(int(BYTES / CORPORA[name].mean_length))
        with (
            env.on_another_node(f"server-peers-{number}") as own,
            run_broker(env.folder / f"kafka-tls-{number}") as broker,
            run_server(own, f"server-peers-{number}") as server,
            cached_frame(env, corpus.quick() if env.quick else corpus) as (frame, expected),
        ):
            yield from _reading(own, network, broker, server, name, frame, expected)
            if network.two_tasks:
                yield from _two_tasks(own, network, server, name, frame, expected)
            if network.write:
                yield from _writing(own, network, broker, server, name, frame, expected)


def _reading(
    env: Environment, network: Network, broker: Broker, server: SecureServer, name: str, frame: Any, expected: Totals
) -> Iterator[Figure]:
    own = _filled_stream(server, frame)
    topic = f"tls-{env.new_stream_id()}"
    broker.create_topic(env.spark, topic)
    frame.write.format("kafka").options(**broker.options(tls=True), topic=topic).save()
    cases: dict[str, tuple[str, Mapping[str, str], str, str]] = {
        OWN: ("aeron", own, OWN_SETTINGS, ""),
        SHARED: ("aeron", {**own, "ipc": "auto"}, SHARED_SETTINGS, ""),
        "Kafka over mutual TLS": (
            "kafka", kafka_options(broker, topic, DEFAULT, tls=True), settings_text(DEFAULT), "",
        ),
        TUNED: (
            "kafka", kafka_options(broker, topic, TUNED_READING, tls=True), settings_text(TUNED_READING), network.read,
        ),
    }  # fmt: skip
    for program, (source, options, _, _) in cases.items():
        check(program, totals_of_frame(load(env, source, options)), expected)
    programs = [
        Program(program, partial(_drain, env, source, options), settings, bar)
        for program, (source, options, settings, bar) in cases.items()
    ]
    title = f"read of {name} rows over {network.name}, encrypted, one task"
    yield from compare(env, title, programs, expected.size / MEGABYTE, warm=WARM_TURNS).figures()
    broker.delete_topic(env.spark, topic)


def _two_tasks(
    env: Environment, network: Network, server: SecureServer, name: str, frame: Any, expected: Totals
) -> Iterator[Figure]:
    """Compare a read in two tasks, of two partitions, with one in one task of as many rows."""
    one, two = _filled_stream(server, frame), _filled_stream(server, frame.repartition(2), partitions=2)
    check("two tasks", totals_of_frame(load(env, "aeron", two)), expected)
    tasks = load(env, "aeron", two).selectExpr("spark_partition_id() task").distinct().count()
    if tasks != 2:
        raise DataMismatchError(f"the rows of two partitions came from {tasks} tasks, expected 2")
    programs = [
        Program("aeron-spark, two tasks", partial(_drain, env, "aeron", two), f"two partitions; {OWN_SETTINGS}"),
        Program(ONE_TASK, partial(_drain, env, "aeron", one), OWN_SETTINGS, network.two_tasks),
    ]
    title = f"read of {name} rows over {network.name}, encrypted, two tasks"
    yield from compare(env, title, programs, expected.size / MEGABYTE, warm=WARM_TURNS).figures()


def _writing(
    env: Environment, network: Network, broker: Broker, server: SecureServer, name: str, frame: Any, expected: Totals
) -> Iterator[Figure]:
    own = server.new_stream_options(payload="arrow", ipc="never")
    shared = server.new_stream_options(payload="arrow")
    topic = f"tls-{env.new_stream_id()}"
    broker.create_topic(env.spark, topic)
    kafka = broker.options(tls=True)
    sinks = [
        Sink(OWN, "aeron", own, f"payload=arrow, {OWN_SETTINGS}", "aeron", own),
        Sink(SHARED, "aeron", shared, f"payload=arrow, {SHARED_SETTINGS}", "aeron", shared),
        Sink(
            TUNED, "kafka", {**kafka, **EXACTLY_ONCE_WRITING, "topic": topic}, settings_text(EXACTLY_ONCE_WRITING),
            "kafka", kafka_options(broker, topic, DEFAULT, tls=True),
        ),
    ]  # fmt: skip
    bars = {TUNED: network.write}
    programs = [Program(sink.name, partial(sink.save, frame), sink.settings, bars.get(sink.name, "")) for sink in sinks]
    title = f"write of {name} rows over {network.name}, encrypted, exactly once"
    yield from compare(env, title, programs, expected.size / MEGABYTE, warm=WARM_TURNS).figures()
    for sink in sinks:
        sink.check(env, expected)
    broker.delete_topic(env.spark, topic)


def _filled_stream(server: SecureServer, frame: Any, partitions: int = 1) -> dict[str, str]:
    """Write a DataFrame to a new stream, and return the options that read it over UDP."""
    options = server.options(server.new_stream(partitions), payload="raw", ipc="never")
    frame.write.format("aeron").options(**options).mode("append").save()
    return options


def _drain(env: Environment, source: str, options: Mapping[str, str]) -> float:
    return drain(load(env, source, options))
