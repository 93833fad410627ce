"""Having a stream recorded: asked for once, where the archive can hear it, and said aloud."""

from __future__ import annotations

import socket
import warnings
from typing import TYPE_CHECKING

from aeron_spark.errors import OptionError
from aeron_spark.log.api import RecordingState
from aeron_spark.transport.channel import ChannelUri

if TYPE_CHECKING:
    from aeron_spark.log.archive_log import ArchiveLog


class RecordingWarning(UserWarning):
    """A stream was not recorded until now: what passed before is lost."""


def ask_to_record(log: ArchiveLog, states: list[RecordingState], record: str) -> None:
    """Have the stream recorded unless it is, as ``record`` says; OptionError where that cannot or must not be done."""
    if any(state.active for state in states) or log.recorded():
        return
    channel, stream_id = log.address.channel, log.address.stream_id
    if record == "never":
        if states:
            return
        raise OptionError(
            f"stream {stream_id} of {channel} has no recording, and option 'record' is 'never'",
            remedy="Let its publisher be recorded, or set option 'record' to 'auto', which records it from now on.",
        )
    check_audible(log, channel)
    log.start_recording()
    if not states:
        warnings.warn(
            f"stream {stream_id} of {channel} was not recorded; it is from now on; what passed before, if any, is lost",
            RecordingWarning,
            stacklevel=2,
        )


def check_audible(log: ArchiveLog, channel: str) -> None:
    """Raise OptionError where the archive's host cannot hear the channel: unicast goes to its own host only."""
    archive = log.address.archives[0]
    parsed = ChannelUri.parse(channel)
    if archive.local:
        elsewhere = parsed.is_unicast_elsewhere([], _resolve) and not _is_this_host(parsed)
    else:
        host = ChannelUri.parse(archive.control_channel).get("endpoint") or ""
        elsewhere = parsed.is_unicast_elsewhere(_resolve(host.rpartition(":")[0].strip("[]")), _resolve)
    if elsewhere:
        raise OptionError(
            f"the archive {archive.name} cannot hear {channel}: it is a unicast stream to another host",
            remedy="Use the archive of that host (option 'archive'), or let the publisher use multicast or "
            "multi-destination-cast (control-mode=dynamic), which several hosts can hear.",
        )


def _is_this_host(channel: ChannelUri) -> bool:
    endpoint = channel.get("endpoint")
    if endpoint is None:
        return True
    host = endpoint.rpartition(":")[0].strip("[]")
    for address in _resolve(host):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, 0))
            except OSError:
                continue
            return True
    return False


def _resolve(host: str) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)]
    except OSError:
        return []
