"""Members of a real Aeron Cluster with an echo service, each a process with its own media driver and archive."""

from __future__ import annotations

import itertools
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import jpype

from aeron_spark.aeron.counters import read_counters
from aeron_spark.aeron.jvm import jclass
from aeron_spark.errors import ConnectError
from aeron_spark.waiting import wait_for
from tests.aeron.streams import close_client
from tests.ports import free_port
from tests.programs import Program, start_python

TIMEOUT_S: Final = 120.0  # an election needs seconds, and minutes on an overloaded machine
PORTS_OF_A_MEMBER: Final = 100  # ClusterConfig.PORTS_PER_NODE
USED_PORTS: Final = range(1, 7)  # of them
ARCHIVE_PORT: Final = 1  # ClusterConfig.ARCHIVE_CONTROL_PORT_OFFSET
INGRESS_PORT: Final = 2  # ClusterConfig.CLIENT_FACING_PORT_OFFSET
CONSENSUS_PORT: Final = 3  # ClusterConfig.MEMBER_FACING_PORT_OFFSET
NODE_ROLE: Final = 201  # AeronCounters.CLUSTER_NODE_ROLE_TYPE_ID
LEADER: Final = 2  # Cluster.Role.LEADER
MARK_FILES: Final = "**/*mark*"  # of a process that was killed; they would have to age before a new one may start

# A member with a service that sends each message back; the program ends at the end of its input.
MEMBER: Final = """
import sys
import jpype
from aeron_spark.aeron.jvm import jclass

member, count, port_base = map(int, sys.argv[1:4])
folder, aeron_dir = sys.argv[4:]

def nothing(*arguments):
    pass

def on_message(session, timestamp, buffer, offset, length, header):
    if session is not None:
        session.offer(buffer, offset, length)  # if it fails, the client sends the message again

echo = jpype.JProxy(jclass("io.aeron.cluster.service.ClusteredService"), dict={
    "onStart": nothing, "onSessionOpen": nothing, "onSessionClose": nothing, "onSessionMessage": on_message,
    "onTimerEvent": nothing, "onTakeSnapshot": nothing, "onRoleChange": nothing, "onTerminate": nothing,
    "onNewLeadershipTermEvent": nothing, "doBackgroundWork": lambda now: 0})
hosts = jclass("java.util.Collections").nCopies(count, "localhost")
config = jclass("io.aeron.samples.cluster.ClusterConfig").create(
    0, member, hosts, hosts, port_base, jclass("java.io.File")(folder), echo)
config.aeronDirectoryName(aeron_dir)
SECOND = 1_000_000_000
driver = config.mediaDriverContext().termBufferSparseFile(True).dirDeleteOnShutdown(True)
driver.publicationTermBufferLength(65536).ipcTermBufferLength(65536)
archive = config.archiveContext().segmentFileLength(262144)
module = config.consensusModuleContext().leaderHeartbeatTimeoutNs(4 * SECOND).leaderHeartbeatIntervalNs(SECOND // 4)
module.sessionTimeoutNs(120 * SECOND).startupCanvassTimeoutNs(20 * SECOND).electionTimeoutNs(2 * SECOND)
module.logChannel("aeron:udp?term-length=262144").ingressChannel("aeron:udp?term-length=65536")
running = jclass("io.aeron.cluster.ClusteredMediaDriver").launch(driver, archive, module)
service = jclass("io.aeron.cluster.service.ClusteredServiceContainer").launch(config.clusteredServiceContext())
print("ready", flush=True)
sys.stdin.readline()
service.close()
running.close()
"""

# A ClusterBackup of the members with these consensus and archive endpoints; the program ends at the end of its input.
BACKUP: Final = """
import sys
from aeron_spark.aeron.jvm import jclass

folder, aeron_dir, consensus, archive_endpoint, own, catchup, control = sys.argv[1:]
driver = jclass("io.aeron.driver.MediaDriver$Context")().aeronDirectoryName(aeron_dir)
driver.threadingMode(jclass("io.aeron.driver.ThreadingMode").SHARED).termBufferSparseFile(True)
driver.ipcTermBufferLength(65536).publicationTermBufferLength(65536).dirDeleteOnShutdown(True)
archive = jclass("io.aeron.archive.Archive$Context")().aeronDirectoryName(aeron_dir)
archive.archiveDirectoryName(folder + "/archive").segmentFileLength(262144)
archive.threadingMode(jclass("io.aeron.archive.ArchiveThreadingMode").SHARED)
archive.controlChannel("aeron:udp?endpoint=" + control).replicationChannel("aeron:udp?endpoint=localhost:0")
remote = jclass("io.aeron.archive.client.AeronArchive$Context")()
remote.controlRequestChannel("aeron:udp?endpoint=" + archive_endpoint)
remote.controlResponseChannel("aeron:udp?endpoint=localhost:0")
SECOND = 1_000_000_000
backup = jclass("io.aeron.cluster.ClusterBackup$Context")().aeronDirectoryName(aeron_dir)
backup.clusterDirectoryName(folder + "/cluster").clusterConsensusEndpoints(consensus)
backup.consensusChannel("aeron:udp?endpoint=" + own).catchupEndpoint(catchup).clusterArchiveContext(remote)
backup.clusterBackupIntervalNs(SECOND).clusterBackupCoolDownIntervalNs(SECOND)
running = jclass("io.aeron.cluster.ClusterBackupMediaDriver").launch(driver, archive, backup)
print("ready", flush=True)
sys.stdin.readline()
running.close()
"""


class Member:
    """One member; ``aeron_dir`` is its media driver's directory."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._cluster = cluster
        self.number = number
        self.aeron_dir = f"{cluster.aeron_dir}-{number}"
        self._process: Program | None = None

    def start(self) -> None:
        """Start the process, without waiting for an election."""
        cluster = self._cluster
        for mark in cluster.folder.glob(f"*{self.number}/{MARK_FILES}"):
            mark.unlink()
        arguments = (self.number, cluster.count, cluster.port_base, cluster.folder, self.aeron_dir)
        self._process = start_python(MEMBER, *map(str, arguments))

    def await_ready(self) -> None:
        """Wait for the archive and the service; the election may still run."""
        assert self._process is not None
        _await_ready(self._process)

    def kill(self) -> None:
        """Kill the process, if it runs; remove its driver's directory, and this process's client of it."""
        close_client(self.aeron_dir)
        if self._process is not None:
            self._process.kill()
            self._process.communicate(timeout=TIMEOUT_S)
            self._process = None
        shutil.rmtree(self.aeron_dir, ignore_errors=True)

    @property
    def is_leader(self) -> bool:
        """Whether the member is the leader, by the counter of its driver."""
        try:
            return any(one.value == LEADER for one in read_counters(self.aeron_dir, {NODE_ROLE}))
        except ConnectError:
            return False


class Cluster:
    """A cluster of ``count`` members, which have not been started."""

    def __init__(self, folder: Path, aeron_dir: Path, count: int) -> None:
        self.folder = folder
        self.aeron_dir = aeron_dir
        self.count = count
        self.port_base = free_port_base(count)
        self.members = [Member(self, number) for number in range(count)]

    def leader(self, among: Sequence[Member] | None = None) -> Member:
        """Wait for a leader among some members, and return it."""
        members = self.members if among is None else among
        return wait_for(lambda: next((one for one in members if one.is_leader), None), TIMEOUT_S, "a leader")

    def endpoints(self, offset: int) -> list[str]:
        """Return the members' endpoints with this offset from their first port, as ``ClusterConfig`` has them."""
        return [f"localhost:{self.port_base + number * PORTS_OF_A_MEMBER + offset}" for number in range(self.count)]

    @contextmanager
    def backup(self, aeron_dir: Path) -> Iterator[None]:
        """Run a ClusterBackup node with its own media driver in ``aeron_dir``."""
        consensus, (archive, *_) = ",".join(self.endpoints(CONSENSUS_PORT)), self.endpoints(ARCHIVE_PORT)
        own = [f"localhost:{free_port()}" for _ in range(3)]
        process = start_python(BACKUP, str(self.folder / "backup"), str(aeron_dir), consensus, archive, *own)
        try:
            _await_ready(process)
            yield
        finally:
            close_client(aeron_dir)
            process.kill()
            process.communicate(timeout=TIMEOUT_S)
            shutil.rmtree(aeron_dir, ignore_errors=True)

    @contextmanager
    def client(self, aeron_dir: str) -> Iterator[Client]:
        """Yield a client that uses the media driver in ``aeron_dir``."""
        endpoints = ",".join(f"{number}={one}" for number, one in enumerate(self.endpoints(INGRESS_PORT)))
        with closing(Client(aeron_dir, endpoints)) as client:
            yield client


class Client:
    """A session with the cluster; ``echoed`` has the messages that the service sent back."""

    def __init__(self, aeron_dir: str, endpoints: str) -> None:
        self.echoed: list[bytes] = []
        handler = {"onMessage": self._on_message, "onSessionEvent": _ignore, "onNewLeader": _ignore,
                   "onAdminResponse": _ignore}  # fmt: skip
        context = jclass("io.aeron.cluster.client.AeronCluster$Context")()
        context.aeronDirectoryName(aeron_dir).ingressChannel("aeron:udp").ingressEndpoints(endpoints)
        context.egressChannel("aeron:udp?endpoint=localhost:0")
        context.egressListener(jpype.JProxy(jclass("io.aeron.cluster.client.EgressListener"), dict=handler))
        context.messageTimeoutNs(int(TIMEOUT_S * 1e9)).newLeaderTimeoutNs(int(TIMEOUT_S * 1e9))
        self._java = jclass("io.aeron.cluster.client.AeronCluster").connect(context)

    def _on_message(self, session: Any, timestamp: Any, buffer: Any, offset: int, length: int, header: Any) -> None:
        data = jpype.JArray(jpype.JByte)(int(length))
        buffer.getBytes(int(offset), data)
        self.echoed.append(bytes(data))

    def offer(self, message: bytes) -> None:
        """Send a message to the leader, as soon as there is one."""
        buffer = jclass("org.agrona.concurrent.UnsafeBuffer")(jpype.JArray(jpype.JByte)(message))
        wait_for(lambda: self._polled() and self._java.offer(buffer, 0, len(message)) > 0, TIMEOUT_S, "the ingress")

    def _polled(self) -> bool:
        self._java.pollEgress()
        return True

    def send(self, messages: Sequence[bytes]) -> None:
        """Send messages until each has come back. A message may be in the log twice, after an election."""
        for message in messages:
            deadline = time.monotonic() + TIMEOUT_S
            while message not in self.echoed:
                self.offer(message)
                until = min(deadline, time.monotonic() + 5)
                while message not in self.echoed and time.monotonic() < until:
                    self._java.pollEgress()
                    time.sleep(0.001)
                assert message in self.echoed or time.monotonic() < deadline, "no echo"

    def close(self) -> None:
        self._java.close()


def _await_ready(process: Program) -> None:
    line = process.stdout.readline()
    assert line == "ready\n", line + process.stdout.read()


def _ignore(*arguments: Any) -> None:
    pass


def free_port_base(count: int) -> int:
    """Return a number from which on the ports of the members are unused."""
    for base in itertools.count(21000, 1000):
        ports = [base + member * PORTS_OF_A_MEMBER + port for member in range(count) for port in USED_PORTS]
        probes = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in ports]
        try:
            for probe, port in zip(probes, ports, strict=True):
                probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        finally:
            for probe in probes:
                probe.close()
        return base
    raise AssertionError("unreachable")


@contextmanager
def running_cluster(folder: Path, aeron_dir: Path, count: int) -> Iterator[Cluster]:
    """Yield a cluster whose members run and have a leader; kill them afterwards."""
    cluster = Cluster(folder, aeron_dir, count)
    try:
        for member in cluster.members:
            member.start()
        for member in cluster.members:
            member.await_ready()
        cluster.leader()
        yield cluster
    finally:
        for member in cluster.members:
            member.kill()
