"""Runs a Kafka broker in KRaft mode, from the jars that ``make bench`` fetches, in a new folder."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from benchmarks.kafka.certificates import Certificates, make_certificates
from benchmarks.kafka.properties import HOST, Ports, broker_properties
from benchmarks.kafka.settings import tls_options
from benchmarks.measure import PEERS
from benchmarks.programs import await_end

JARS: Final = PEERS / "broker"
# Kafka's own start script has these of the heap and the collector, too
JAVA: Final = (
    "java", "-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
START_S: Final = 300.0  # a busy machine needs much longer than an idle one
REQUEST_S: Final = 120.0  # for the broker to answer a request about topics
POLL_INTERVAL_S: Final = 0.1
LOG_CHARACTERS: Final = 4000


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker."""

    ports: Ports
    certificates: Certificates

    def options(self, *, tls: bool) -> dict[str, str]:
        """Return the options of Spark's Kafka source and sink that lead to one of the listeners."""
        if not tls:
            return {"kafka.bootstrap.servers": f"{HOST}:{self.ports.plain}"}
        stores = tls_options(str(self.certificates.client), str(self.certificates.authority))
        return {"kafka.bootstrap.servers": f"{HOST}:{self.ports.tls}", **stores}

    def create_topic(self, spark: Any, name: str, partitions: int = 1) -> None:
        """Create a topic with the client of Spark's JVM."""
        jvm = spark._jvm
        topic = jvm.org.apache.kafka.clients.admin.NewTopic(
            name, jvm.java.util.Optional.of(partitions), jvm.java.util.Optional.empty()
        )
        self._request(spark, lambda admin: admin.createTopics(jvm.java.util.Collections.singletonList(topic)))

    def delete_topic(self, spark: Any, name: str) -> None:
        """Delete a topic; the broker removes its files soon after."""
        names = spark._jvm.java.util.Collections.singletonList(name)
        self._request(spark, lambda admin: admin.deleteTopics(names))

    def _request(self, spark: Any, send: Callable[[Any], Any]) -> None:
        jvm = spark._jvm
        properties = jvm.java.util.Properties()
        properties.setProperty("bootstrap.servers", f"{HOST}:{self.ports.plain}")
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        try:
            send(admin).all().get(int(REQUEST_S), jvm.java.util.concurrent.TimeUnit.SECONDS)
        finally:
            admin.close()


@contextmanager
def run_broker(folder: Path, jars: Path = JARS) -> Iterator[Broker]:
    """Run a broker with its files in ``folder``, which must not exist; stop it at the end.

    Raises RuntimeError if the jars are missing, or if the broker does not listen within ``START_S``.
    """
    if not any(jars.glob("kafka_*.jar")):
        raise RuntimeError(f"Kafka's jars are not in {jars}: run the benchmarks with `make bench`, which fetches them")
    folder.mkdir(mode=0o700)
    certificates = make_certificates(folder)
    ports = Ports(*free_ports(3))
    properties = folder / "server.properties"
    properties.write_text(broker_properties(folder / "data", ports, certificates.broker, certificates.authority))
    command = [*JAVA, "-cp", f"{jars}/*"]
    log = folder / "broker.log"
    with log.open("w") as output:
        _format_storage(command, properties, output, log)
        process = subprocess.Popen([*command, "kafka.Kafka", str(properties)], stdout=output, stderr=output)
    try:
        for port in (ports.plain, ports.tls):
            _await_listener(process, port, log)
        yield Broker(ports, certificates)
    finally:
        process.terminate()
        await_end(process)
        shutil.rmtree(folder / "data", ignore_errors=True)  # the next part may need the space


def _format_storage(command: list[str], properties: Path, output: Any, log: Path) -> None:
    cluster = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    # in one argument, because an id may begin with "-"
    arguments = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "--config", str(properties)]
    code = subprocess.run([*command, *arguments], stdout=output, stderr=output, timeout=START_S, check=False).returncode
    if code:
        raise RuntimeError(f"Kafka's storage tool exited with {code}: {log.read_text()[-LOG_CHARACTERS:]}")


def _await_listener(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection((HOST, port), timeout=POLL_INTERVAL_S).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                state = "is running" if process.poll() is None else f"exited with {process.returncode}"
                raise RuntimeError(
                    f"the Kafka broker does not listen on port {port} after {START_S:g} s and {state}: "
                    f"{log.read_text()[-LOG_CHARACTERS:]}"
                ) from None
            time.sleep(POLL_INTERVAL_S)


def free_ports(count: int) -> list[int]:
    """Return that many different TCP ports of the loopback interface that no program uses now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
