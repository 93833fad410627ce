"""What both ends of a connection can be told; each has a default and a unit."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aeron_spark.errors import OptionError
from aeron_spark.protocol.frame_cipher import OVERHEAD_BYTES, KeyLimits
from aeron_spark.protocol.frames import FRAME_HEAD, RECORD_HEAD
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.rpc_calls import MAX_IN_FLIGHT
from aeron_spark.protocol.rpc_dispatch import MAX_RUNNING, MAX_RUNNING_BYTES
from aeron_spark.protocol.rpc_objects import MAX_OBJECTS
from aeron_spark.protocol.session import SessionLimits
from aeron_spark.protocol.transfers import MAX_HELD_BYTES, MAX_OPEN, MAX_SPILLED_BYTES, MEMORY_LIMIT
from aeron_spark.transport.api import MAX_MESSAGE_BYTES, ChannelSettings

RECORD_BYTES: Final = 96 * 1024  # of one record: a chunk of a stream, or a message of 64 KiB with its type
QUEUE_BYTES: Final = 4 * 1024 * 1024  # received and not yet taken by listeners, before the sender is held up
SEND_SECONDS: Final = 30.0  # as Spark's sinks wait for room (``offerTimeout``)
TAMPERED_MOST: Final = 5  # within the time below; each costs a resume
TAMPERED_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 2.0  # for what was sent to go out before a connection ends
WORKERS: Final = 64  # threads for remote calls of all connections; they are made when needed


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Of a client or a server, for each of its connections.

    How long a session is kept stands in ``times``, where it is checked against the other times, and in ``session``,
    which keeps it.
    """

    times: Times = field(default_factory=Times)
    session: SessionLimits = field(default_factory=lambda: SessionLimits(max_record_bytes=RECORD_BYTES))
    keys: KeyLimits = field(default_factory=KeyLimits)
    channel_settings: ChannelSettings = field(default_factory=ChannelSettings)
    send_seconds: float = SEND_SECONDS
    close_seconds: float = CLOSE_SECONDS
    queue_bytes: int = QUEUE_BYTES
    tampered_most: int = TAMPERED_MOST
    tampered_seconds: float = TAMPERED_SECONDS
    workers: int = WORKERS
    max_calls: int = MAX_IN_FLIGHT
    max_running: int = MAX_RUNNING
    max_running_bytes: int = MAX_RUNNING_BYTES  # of the calls that run, before acknowledgements to the caller pause
    max_objects: int = MAX_OBJECTS
    max_streams: int = MAX_OPEN
    stream_memory_bytes: int = MEMORY_LIMIT
    stream_held_bytes: int = MAX_HELD_BYTES
    stream_spilled_bytes: int = MAX_SPILLED_BYTES
    spill_folder: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))

    def __post_init__(self) -> None:
        room = self.channel_settings.max_message - OVERHEAD_BYTES - FRAME_HEAD.size - RECORD_HEAD.size
        if self.session.max_record_bytes > room:
            raise OptionError(
                f"records of {self.session.max_record_bytes} bytes do not fit "
                f"messages of {self.channel_settings.max_message}",
                remedy=f"Make max_message larger than {MAX_MESSAGE_BYTES}, or max_record_bytes at most {room}",
            )
        for name in ("send_seconds", "close_seconds", "queue_bytes", "tampered_most", "tampered_seconds", "workers"):
            if getattr(self, name) <= 0:
                raise OptionError(f"{name} is {getattr(self, name)}", remedy="Make it more than 0")
        kept, waiting = self.session.retention_seconds, self.session.buffer_seconds
        if kept != self.times.retention_seconds:
            raise OptionError(
                f"a session is kept for {kept:g} s, and by the times of its connections for"
                f" {self.times.retention_seconds:g} s",
                remedy="Give session and times the same retention_seconds",
            )
        if waiting > kept:
            raise OptionError(
                f"messages wait {waiting:g} s for a connection, but their session is kept for {kept:g} s only",
                remedy="Lower bufferTime (buffer_seconds), or raise sessionTimeout (retention_seconds)",
            )
