"""Media drivers in separate processes, with the extensions that send rejections and responses at once."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.endpoint_transport import AeronClientTransport, AeronServerTransport
from aeron_spark.aeron.jvm import classpath
from aeron_spark.errors import TransportError
from aeron_spark.node.state_files import driver_liveness
from aeron_spark.transport.api import ServerAddress
from aeron_spark.waiting import wait_for
from tests.class_data import java_options
from tests.ports import free_ports

TIMEOUT_S: Final = 30.0
START_TIMEOUT_S: Final = 120.0  # a driver starts in one second, and in many where sixteen processes share two cores
MEDIA_DRIVER: Final = "io.aeron.driver.MediaDriver"
OPTIONS: Final = (
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Dagrona.disable.bounds.checks=true",
    "-Daeron.threading.mode=SHARED",
    "-Daeron.dir.delete.on.shutdown=true",
    "-Daeron.term.buffer.sparse.file=true",
)
PROMPT: Final = (
    "-Daeron.CongestionControl.supplier=io.aeronspark.driver.HandshakeTimeouts",
    "-Daeron.ReceiveChannelEndpoint.supplier=io.aeronspark.driver.HandshakeReceiveChannelEndpoint$Supplier",
    "-Daeron.SendChannelEndpoint.supplier=io.aeronspark.driver.HandshakeSendChannelEndpoint$Supplier",
)


class Driver:
    """A running driver with an Aeron client."""

    def __init__(self, aeron_dir: Path, process: subprocess.Popen[bytes]) -> None:
        self.aeron_dir = aeron_dir
        self.process = process
        self.client = AeronClient(str(aeron_dir))

    def logs(self, folder: str) -> int:
        """Return the number of log buffers of ``publications`` or ``images``."""
        return len(list((self.aeron_dir / folder).glob("*.logbuffer")))


@contextmanager
def driver(aeron_dir: Path, *options: str) -> Iterator[Driver]:
    """Start a driver; stop it and remove its directory."""
    with driver_process(aeron_dir, *OPTIONS, *options) as process:
        running = Driver(aeron_dir, process)
        try:
            yield running
        finally:
            running.client.close()


@contextmanager
def driver_process(aeron_dir: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a driver's process and wait until it is ready; at the end, also on failure, remove its directory."""
    process = subprocess.Popen(
        [
            "java",
            *java_options(),
            *options,
            f"-Daeron.dir={aeron_dir}",
            "-cp",
            os.pathsep.join(classpath()),
            MEDIA_DRIVER,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: _is_ready(aeron_dir, process), START_TIMEOUT_S, f"the media driver in {aeron_dir}")
        yield process
    finally:
        _end(process)
        shutil.rmtree(aeron_dir, ignore_errors=True)


def _is_ready(aeron_dir: Path, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        raise TransportError(f"the media driver in {aeron_dir} ended with code {process.returncode} while it started")
    found = driver_liveness(aeron_dir)
    return found is not None and found.alive


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class AeronWorld:
    """A free address on this machine, for a server on one driver and clients on another."""

    silence = 1.0  # longer than a driver's half-second between two checks of receivers

    def __init__(self, server: Driver, client: Driver, host: str) -> None:
        self.server, self.client = server, client
        self.address = ServerAddress("ipc") if host == "ipc" else ServerAddress("udp", host, *free_ports(host))

    def server_transport(self) -> AeronServerTransport:
        return AeronServerTransport(self.server.client)

    def client_transport(self) -> AeronClientTransport:
        return AeronClientTransport(self.client.client, self.address)
