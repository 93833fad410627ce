"""The URI parameters of Aeron 1.51, with the check of each value.

Aeron ignores an unknown parameter and reads ``reliable=yes`` as false. The only symptom of a misspelt name is a stream
that never connects. Therefore names and values are checked here, before the start.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Final

TERM_MIN_BYTES: Final = 64 * 1024  # LogBufferDescriptor.TERM_MIN_LENGTH
TERM_MAX_BYTES: Final = 1024 * 1024 * 1024  # LogBufferDescriptor.TERM_MAX_LENGTH
MTU_MAX_BYTES: Final = 65_504  # Configuration.MAX_UDP_PAYLOAD_LENGTH, a UDP datagram less its headers, 32-byte aligned
FRAME_ALIGNMENT: Final = 32  # FrameDescriptor.FRAME_ALIGNMENT, also the length of a frame's header
MAX_RESEND_MAX: Final = 256  # Configuration.MAX_RESEND_MAX
CONTROL_MODES: Final = ("dynamic", "manual", "response")

Check = Callable[[str], None]

_SIZE = re.compile(r"([0-9]{1,18})([kKmMgG]?)", re.ASCII)
_DURATION = re.compile(r"[0-9]{1,18}(?:[num]?s)?", re.ASCII | re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_size(text: str) -> int:
    """Return the bytes of a size such as ``4096``, ``64k``, ``16M`` or ``1g``. Raises ValueError with a phrase."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("is not a size such as 65536, 64k, 16m or 1g")
    return int(match[1]) * _UNITS[match[2].lower()]


def nearest(name: str) -> str | None:
    """Return the most similar parameter name, or None."""
    spelt = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name.strip()).replace("_", "-").lower()
    if spelt in CHECKS:
        return spelt
    if spelt in _OTHER_NAMES:
        return _OTHER_NAMES[spelt]
    close = difflib.get_close_matches(spelt, CHECKS, n=1, cutoff=0.6)
    return close[0] if close else None


def _any(text: str) -> None:
    """Accept any text; the channel checks addresses, together with other parameters."""


def _size(text: str) -> None:
    parse_size(text)


def _term_length(text: str) -> None:
    size = parse_size(text)
    if not TERM_MIN_BYTES <= size <= TERM_MAX_BYTES or size & (size - 1):
        raise ValueError("is not a power of two from 64k to 1g")


def _mtu(text: str) -> None:
    size = parse_size(text)
    if not FRAME_ALIGNMENT < size <= MTU_MAX_BYTES or size % FRAME_ALIGNMENT:
        raise ValueError("is not a multiple of 32 from 64 to 65504")


def _duration(text: str) -> None:
    if _DURATION.fullmatch(text) is None:
        raise ValueError("is not a duration such as 5s, 200ms, 10us or 1000ns")


def _boolean(text: str) -> None:
    if text not in ("true", "false"):
        raise ValueError("is neither true nor false")


def _group(text: str) -> None:
    if text not in ("true", "false", "infer"):
        raise ValueError("is not one of true, false, infer")


def _control_mode(text: str) -> None:
    if text not in CONTROL_MODES:
        raise ValueError(f"is not one of {', '.join(CONTROL_MODES)}")


def _integer(low: int, high: int, *words: str) -> Check:
    def check(text: str) -> None:
        if text in words:
            return
        if _INTEGER.fullmatch(text) is None or not low <= int(text) <= high:
            alternatives = f", nor {' nor '.join(words)}" if words else ""
            raise ValueError(f"is not a number from {low} to {high}{alternatives}")

    return check


_INT32: Final = _integer(-(2**31), 2**31 - 1)
_TIMESTAMP_OFFSET: Final = _integer(0, MTU_MAX_BYTES, "reserved")


def _session_id(text: str) -> None:
    if text.startswith("tag:"):
        _integer(0, 2**63 - 1)(text.removeprefix("tag:"))
    else:
        _INT32(text)


CHECKS: Final[dict[str, Check]] = {
    "endpoint": _any,
    "interface": _any,
    "control": _any,
    "control-mode": _control_mode,
    "init-term-id": _INT32,
    "term-id": _INT32,
    "term-offset": _integer(0, TERM_MAX_BYTES),
    "term-length": _term_length,
    "mtu": _mtu,
    "ttl": _integer(0, 255),
    "session-id": _session_id,
    "stream-id": _INT32,
    "linger": _duration,
    "reliable": _boolean,
    "tags": _any,
    "sparse": _boolean,
    "alias": _any,
    "eos": _boolean,
    "tether": _boolean,
    "group": _group,
    "rejoin": _boolean,
    "cc": _any,
    "fc": _any,
    "gtag": _integer(-(2**63), 2**63 - 1),
    "ssc": _boolean,
    "so-sndbuf": _size,
    "so-rcvbuf": _size,
    "rcv-wnd": _size,
    "pub-wnd": _size,
    "media-rcv-ts-offset": _TIMESTAMP_OFFSET,
    "channel-rcv-ts-offset": _TIMESTAMP_OFFSET,
    "channel-snd-ts-offset": _TIMESTAMP_OFFSET,
    "response-endpoint": _any,
    "response-correlation-id": _integer(-1, 2**63 - 1, "prototype"),
    "nak-delay": _duration,
    "max-resend": _integer(1, MAX_RESEND_MAX),
    "untethered-window-limit-timeout": _duration,
    "untethered-linger-timeout": _duration,
    "untethered-resting-timeout": _duration,
}
"""The parameter names of Aeron 1.51 (CommonContext), with the check of each value."""

# Names in Aeron's builder and documentation that differ from the parameter's name in a URI.
_OTHER_NAMES: Final = {
    "network-interface": "interface",
    "control-endpoint": "control",
    "mdc-control": "control",
    "initial-term-id": "init-term-id",
    "mtu-length": "mtu",
    "term-buffer-length": "term-length",
    "flow-control": "fc",
    "congestion-control": "cc",
    "group-tag": "gtag",
    "spies-simulate-connection": "ssc",
    "socket-sndbuf": "so-sndbuf",
    "socket-rcvbuf": "so-rcvbuf",
    "receiver-window": "rcv-wnd",
    "publication-window": "pub-wnd",
    "port": "endpoint",
    "host": "endpoint",
    "address": "endpoint",
}
