"""What a server's and a client's options have in common, as :class:`LinkSettings`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aeron_spark.connection.settings import RECORD_BYTES, LinkSettings
from aeron_spark.errors import OptionError, SetupError
from aeron_spark.keys import key_files
from aeron_spark.options import values
from aeron_spark.options.given import OptionReader
from aeron_spark.protocol.liveness import MIN_RETENTION_SECONDS, Times
from aeron_spark.protocol.noise import psk_of
from aeron_spark.protocol.session import SessionLimits
from aeron_spark.transport.api import ChannelSettings
from aeron_spark.transport.channel_parameters import FRAME_ALIGNMENT

MESSAGES_A_TERM: Final = 8  # Aeron takes messages of up to an eighth of a term


def link_settings(given: OptionReader) -> LinkSettings:
    """Read what both ends know. Raises OptionError for what contradicts itself or cannot work."""
    times = _times(given)
    waiting_ns = given.read("bufferTime", values.duration_ns)
    spill = given.text("spillDir")
    defaults = LinkSettings()
    return LinkSettings(
        times=times,
        session=SessionLimits(
            buffer_bytes=_number(given, given.size("bufferBytes"), "bufferBytes"),
            buffer_seconds=times.retention_seconds if waiting_ns is None else waiting_ns / values.NANOS,
            retention_seconds=times.retention_seconds,
            max_record_bytes=RECORD_BYTES,
            buffering=given.flag("buffering"),
        ),
        channel_settings=_channel_settings(given),
        send_seconds=given.seconds("sendTimeout"),
        close_seconds=given.seconds("closeTimeout"),
        queue_bytes=_number(given, given.size("queueBytes"), "queueBytes"),
        tampered_most=_number(given, given.whole("maxTampered"), "maxTampered"),
        tampered_seconds=given.seconds("tamperedTime"),
        workers=_number(given, given.whole("workers"), "workers"),
        max_calls=_number(given, given.whole("maxCalls"), "maxCalls"),
        max_running=_number(given, given.whole("maxRunning"), "maxRunning"),
        max_objects=_number(given, given.whole("maxObjects"), "maxObjects"),
        max_streams=_number(given, given.whole("maxStreams"), "maxStreams"),
        stream_memory_bytes=_number(given, given.size("streamMemory"), "streamMemory"),
        stream_held_bytes=_number(given, given.size("streamMemoryTotal"), "streamMemoryTotal"),
        stream_spilled_bytes=_number(given, given.size("streamDiskTotal"), "streamDiskTotal"),
        spill_folder=defaults.spill_folder if spill is None else Path(spill).expanduser(),
    )


def shared_secret(given: OptionReader) -> bytes | None:
    """Read the file of the shared secret, and return the pre-shared key it stands for; None where none is named.

    Raises SetupError where there is no such file or others can read it, OptionError for a secret that is too short.
    """
    text = given.text("sharedSecretFile")
    if text is None:
        return None
    path = Path(text).expanduser()
    secret = key_files.read_secret(path)
    if secret is None:
        raise SetupError(f"there is no shared secret in {path}", remedy="For example: openssl rand -base64 32 > FILE")
    try:
        return psk_of(secret.removesuffix(b"\n").removesuffix(b"\r"))
    except OptionError as error:
        raise OptionError(f"option 'sharedSecretFile': {error.what}", remedy=error.remedy) from None


def _times(given: OptionReader) -> Times:
    expiry, linger, kept = given.seconds("expiry"), given.seconds_or_zero("linger"), given.seconds("sessionTimeout")
    if kept < MIN_RETENTION_SECONDS:
        raise OptionError(
            f"option 'sessionTimeout' is {kept:g} s, less than {MIN_RETENTION_SECONDS:g} s: a client that has to find "
            "its way back would come too late",
            remedy=f"Make it at least {MIN_RETENTION_SECONDS:g}s",
        )
    if kept <= expiry + linger:
        raise OptionError(
            f"option 'sessionTimeout' is {kept:g} s, but a connection takes {expiry + linger:g} s to end ('expiry' and "
            "'linger')",
            remedy="Raise 'sessionTimeout', or lower the other two",
        )
    return Times(
        expiry_seconds=expiry,
        setup_seconds=given.seconds("setupTimeout"),
        linger_seconds=linger,
        keep_alive_seconds=given.seconds("keepAlive"),
        ping_seconds=given.seconds("pingTimeout"),
        retention_seconds=kept,
    )


def _channel_settings(given: OptionReader) -> ChannelSettings:
    mtu = _number(given, given.size("mtu"), "mtu")
    if mtu % FRAME_ALIGNMENT:
        raise OptionError(
            f"option 'mtu' is {mtu}, not a multiple of {FRAME_ALIGNMENT}",
            remedy=f"The next one is {mtu - mtu % FRAME_ALIGNMENT}",
        )
    term = _number(given, given.size("termLength"), "termLength")
    if term & (term - 1):
        raise OptionError(
            f"option 'termLength' is {term}, not a power of two", remedy=f"The next one is {1 << term.bit_length()}"
        )
    most = _number(given, given.size("maxMessage"), "maxMessage")
    if most > term // MESSAGES_A_TERM:
        raise OptionError(
            f"option 'maxMessage' is {most}, more than an eighth of 'termLength' ({term})",
            remedy=f"Make 'termLength' at least {1 << (MESSAGES_A_TERM * most - 1).bit_length()}, or messages smaller",
        )
    return ChannelSettings(term_bytes=term, mtu_bytes=mtu, reliable=given.flag("reliable"), max_message=most)


def _number(given: OptionReader, value: int | None, name: str) -> int:
    """These rows all have a default."""
    return given.required(name, value)
