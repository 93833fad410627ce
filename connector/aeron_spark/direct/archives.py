"""Resolves options to addresses: the media driver of this process, and the channels to the archives."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from typing import Final

from aeron_spark import node
from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.errors import SetupError
from aeron_spark.log.api import (
    EMBEDDED,
)
from aeron_spark.node import NodeHandle
from aeron_spark.options import DirectRoute
from aeron_spark.process_cache import ProcessCache
from aeron_spark.transport.addresses import HostPort, unknown_host
from aeron_spark.transport.channel import ChannelUri, refuse_archive_streams

CONTROL_STREAM_ID: Final = 10  # Aeron's default for an archive's control requests


@dataclass(frozen=True, slots=True)
class ArchiveConnections:
    """The media driver of a process, and the addresses of a stream's archives from this process."""

    aeron_dir: str
    archives: tuple[ArchiveAddress, ...]


def archives_of(way: DirectRoute) -> ArchiveConnections:
    """Return the driver and archives of the route; start this machine's node if necessary, where one belongs.

    The node does not stop before this process ends.
    """
    handle = hold_node(way.aeron_dir, way.connect_timeout)
    archives = tuple(
        embedded(handle, way.connect_timeout) if archive == EMBEDDED else _remote(archive, way, handle.aeron_dir)
        for archive in way.archive
    )
    channel = ChannelUri.parse(way.channel)
    refuse_archive_streams(
        channel,
        way.stream_id,
        [(ChannelUri.parse(one.control_channel), one.control_stream_id) for one in archives],
    )
    return ArchiveConnections(handle.aeron_dir, archives)


def embedded(handle: NodeHandle, timeout: float = 10.0) -> ArchiveAddress:
    """Return the address of the archive of this machine's node."""
    return ArchiveAddress(
        name=EMBEDDED,
        aeron_dir=handle.aeron_dir,
        control_channel=handle.control_channel,
        control_stream_id=handle.control_stream,
        archive_dir=handle.archive_dir,
        archive_id=handle.archive_id,
        timeout=timeout,
    )


def _remote(uri: str, way: DirectRoute, aeron_dir: str) -> ArchiveAddress:
    channel = ChannelUri.parse(uri)
    stream_id = int(channel.get("stream-id") or CONTROL_STREAM_ID)
    if channel.media == "ipc":
        return ArchiveAddress(
            name=channel.get("alias") or f"ipc:{stream_id}",
            aeron_dir=aeron_dir,
            control_channel=str(channel.without("stream-id", "alias")),
            control_stream_id=stream_id,
            credentials_file=way.credentials_file or "",
            timeout=way.connect_timeout,
        )
    endpoint = channel.get("endpoint") or channel.get("control") or ""
    return ArchiveAddress(
        name=channel.get("alias") or str(HostPort.parse(endpoint)),
        aeron_dir=aeron_dir,
        control_channel=str(channel.without("stream-id", "alias")),
        control_stream_id=stream_id,
        response_channel=_local_channel(way.response_channel, endpoint),
        replay_channel=_local_channel(way.replay_channel, endpoint),
        local=False,
        credentials_file=way.credentials_file or "",
        timeout=way.connect_timeout,
    )


def _local_channel(option: str | None, endpoint: str) -> str:
    if option == "response":
        # The archive's driver opens this port for response channels, because requests use the control port.
        control = HostPort.parse(endpoint)
        return f"aeron:udp?control-mode=response|control={HostPort(control.host, control.port + 1)}"
    return option or f"aeron:udp?endpoint={facing_address(endpoint)}:0"


def facing_address(endpoint: str) -> str:
    """Return this machine's address on the route to ``endpoint``, as in a channel, without sending a packet."""
    target = HostPort.parse(endpoint)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            own = str(probe.getsockname()[0])
    except socket.gaierror as error:
        raise SetupError(
            unknown_host(target.host), remedy="Correct the name, or add the host to this machine's name service."
        ) from error
    except OSError as error:
        raise SetupError(
            f"this machine has no route to the archive at {endpoint}: {error}",
            remedy="Correct the address, or set 'responseChannel' and 'replayChannel'.",
        ) from error
    return f"[{own}]" if ":" in own else own


def this_host() -> str:
    """Return an identifier of this running machine or container: its name and boot id."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            return f"{socket.gethostname()} {boot.read().strip()}"
    except OSError:
        return socket.gethostname()


HELD_NODES: Final[ProcessCache[str | None, NodeHandle]] = ProcessCache()  # by the requested directory


def hold_node(aeron_dir: str | None, wait_s: float) -> NodeHandle:
    """Return this process's handle on the node of ``aeron_dir``; the handle stays open until the process ends.

    ``wait_s`` is that of ``node.ensure``.
    """
    return HELD_NODES.get(
        aeron_dir,
        lambda: node.ensure(aeron_dir, wait_s=wait_s),
        lambda handle: not handle.closed and is_running(handle.pid),
        NodeHandle.close,
    )


def is_running(pid: int) -> bool:
    """Whether a node process runs. A process that this one has started, and that has ended, does not."""
    with contextlib.suppress(ChildProcessError):
        # A node that this process started remains a zombie, which seems alive, until it is reaped.
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended and its parent has not reaped it yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[:1] == [b"Z"]
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """The data that a process needs to open the log of a stream; the driver sends it to executors."""

    channel: str
    stream_id: int
    archives: tuple[ArchiveAddress, ...]
    idle_timeout: float = 30.0
    read_path: str = "auto"
    fail_on_data_loss: bool = True
