"""The settings of connections, which clients and servers have in common, made from their options."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aeron_spark.errors import OptionError
from aeron_spark.options import EndpointOptions
from aeron_spark.protocol.frame_cipher import OVERHEAD_BYTES, KeyLimits
from aeron_spark.protocol.frames import FRAME_HEAD, RECORD_HEAD
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.session import SessionLimits
from aeron_spark.transport.api import MAX_MESSAGE_BYTES, MTU_BYTES, ChannelSettings

RECORD_BYTES: Final = 96 * 1024  # of the longest record: a chunk of a transfer, or a message of 64 KiB with its type


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Settings of a client or a server for each of its connections.

    ``times`` and ``session`` must have the same ``retention_seconds``: ``times`` checks it against the other times, and
    ``session`` applies it.
    """

    times: Times = field(default_factory=Times)
    session: SessionLimits = field(default_factory=lambda: SessionLimits(max_record_bytes=RECORD_BYTES))
    keys: KeyLimits = field(default_factory=KeyLimits)
    channel_settings: ChannelSettings = field(default_factory=ChannelSettings)
    send_seconds: float = EndpointOptions.send_timeout
    close_seconds: float = EndpointOptions.close_timeout
    queue_bytes: int = EndpointOptions.queue_bytes
    tampered_most: int = EndpointOptions.max_tampered
    tampered_seconds: float = EndpointOptions.tampered_time
    workers: int = EndpointOptions.workers
    workers_per_key: int = EndpointOptions.workers  # all, unless a server has many clients
    max_calls: int = EndpointOptions.max_calls
    max_running: int = EndpointOptions.max_running
    call_bytes: int = EndpointOptions.call_bytes
    memory_limit: int = 0  # for what all connections hold; 0: no limit, as for a client
    max_objects: int = EndpointOptions.max_objects
    max_transfers: int = EndpointOptions.max_transfers
    transfer_memory_bytes: int = EndpointOptions.transfer_memory
    transfer_held_bytes: int = EndpointOptions.transfer_memory_total
    transfer_spilled_bytes: int = EndpointOptions.transfer_disk_total
    spill_folder: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))

    def __post_init__(self) -> None:
        room = self.channel_settings.max_message - OVERHEAD_BYTES - FRAME_HEAD.size - RECORD_HEAD.size
        if self.session.max_record_bytes > room:
            raise OptionError(
                f"records of {self.session.max_record_bytes} bytes do not fit "
                f"messages of {self.channel_settings.max_message}",
                remedy=f"Make max_message larger than {MAX_MESSAGE_BYTES}, or max_record_bytes at most {room}.",
            )
        for name in ("send_seconds", "close_seconds", "queue_bytes", "tampered_most", "tampered_seconds", "workers"):
            if getattr(self, name) <= 0:
                raise OptionError(f"{name} is {getattr(self, name)}", remedy="Make it more than 0.")
        retention_s, buffer_s = self.session.retention_seconds, self.session.buffer_seconds
        if retention_s != self.times.retention_seconds:
            raise OptionError(
                f"retention_seconds is {retention_s:g} in session and {self.times.retention_seconds:g} in times",
                remedy="Give session and times the same retention_seconds.",
            )
        if buffer_s > retention_s:
            raise OptionError(
                f"messages wait {buffer_s:g} s for a connection, but their session is kept for {retention_s:g} s only",
                remedy="Lower bufferTime (buffer_seconds), or raise sessionTimeout (retention_seconds).",
            )

    @classmethod
    def of(cls, options: EndpointOptions) -> LinkSettings:
        """Make the settings from the options of a client or server. Raises OptionError for options that conflict."""
        retention_s, spill_dir = options.session_timeout, options.spill_dir
        return cls(
            times=Times(
                expiry_seconds=options.expiry,
                setup_seconds=options.setup_timeout,
                linger_seconds=options.linger,
                keep_alive_seconds=options.keep_alive,
                ping_seconds=options.ping_timeout,
                retention_seconds=retention_s,
            ),
            session=SessionLimits(
                buffer_bytes=options.buffer_bytes,
                buffer_seconds=retention_s if options.buffer_time is None else options.buffer_time,
                retention_seconds=retention_s,
                max_record_bytes=RECORD_BYTES,
                buffering=options.buffering,
            ),
            channel_settings=ChannelSettings(
                options.term_length,
                options.mtu or MTU_BYTES,
                options.reliable,
                options.max_message,
                finds_mtu=options.mtu is None,
            ),
            send_seconds=options.send_timeout,
            close_seconds=options.close_timeout,
            queue_bytes=options.queue_bytes,
            tampered_most=options.max_tampered,
            tampered_seconds=options.tampered_time,
            workers=options.workers,
            max_calls=options.max_calls,
            max_running=options.max_running,
            call_bytes=options.call_bytes,
            max_objects=options.max_objects,
            max_transfers=options.max_transfers,
            transfer_memory_bytes=options.transfer_memory,
            transfer_held_bytes=options.transfer_memory_total,
            transfer_spilled_bytes=options.transfer_disk_total,
            spill_folder=Path(tempfile.gettempdir() if spill_dir is None else spill_dir).expanduser(),
        )
