"""The texts of Echo 1.0 and 2.0, byte for byte as the reference speaks them.

    1.0  client -> server      HELLO <port>                        decimal, the client's own receive port
         both ways             anything                            echoed as it is
    2.0  client -> all         HELLO <key>                         1 to 8 upper-case hex digits
         server -> all         <session> CONNECT <data port> <control port> <key xor duologue session>
         server -> all         <session> ERROR <text>
         client -> duologue    ECHO <bytes>
         server -> duologue    ECHO <bytes>, or ERROR <text>, after which the duologue is closed

``<session>`` is the signed session id of the client's publication to all-clients. What follows ``ECHO `` are
bytes, sent back untouched: line breaks and what is not UTF-8 among them, which the reference refuses or changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

STREAM_ID: Final = 0x2044F002
LARGEST_PORT: Final = 65535
FIRST_SESSION: Final = 1
LAST_SESSION: Final = (1 << 31) - 2  # the reference draws below 2^31 - 1

BAD_MESSAGE: Final = "bad message"
SERVER_FULL: Final = "server full"
ADDRESS_FULL: Final = "too many connections for IP address"

_ECHO: Final = b"ECHO "
_HELLO_1: Final = re.compile(rb"HELLO ([0-9]{1,10})")
_HELLO_2: Final = re.compile(rb"HELLO ([0-9A-F]{1,8})")
_ANSWER: Final = re.compile(rb"(-?[0-9]{1,10}) (CONNECT|ERROR) (.*)", re.DOTALL)
_PLACE: Final = re.compile(rb"([0-9]{1,5}) ([0-9]{1,5}) ([0-9A-F]{1,8})")


@dataclass(frozen=True, slots=True)
class EchoAddress:
    """Where a duologue is, as CONNECT says."""

    data_port: int
    control_port: int
    session_id: int


@dataclass(frozen=True, slots=True)
class Refused:
    """An ERROR: the text is the server's."""

    text: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What the protocol does not know."""

    message: bytes

    def __str__(self) -> str:
        shown = self.message[:80].decode("utf-8", "backslashreplace")
        return f"{shown!r}{'...' if len(self.message) > 80 else ''}"


def hello_1(port: int) -> bytes:
    """Echo 1.0: introduce a client that listens at ``port``."""
    return b"HELLO %d" % port


def read_hello_1(message: bytes) -> int | None:
    """The number in a client's HELLO, not yet judged as a port; None where it is no HELLO."""
    match = _HELLO_1.fullmatch(message)
    return int(match[1]) if match else None


def hello_2(key: int) -> bytes:
    """Echo 2.0: introduce a client that will understand what is veiled with ``key`` (32 bits)."""
    return b"HELLO %X" % key


def read_hello_2(message: bytes) -> int | None:
    """The key in a client's HELLO, None where it is none."""
    match = _HELLO_2.fullmatch(message)
    return int(match[1], 16) if match else None


def connect(session_id: int, key: int, place: EchoAddress) -> bytes:
    """The answer to the client of ``session_id`` that sent ``key``: its duologue is at ``place``."""
    return b"%d CONNECT %d %d %X" % (session_id, place.data_port, place.control_port, key ^ place.session_id)


def refuse(session_id: int, text: str) -> bytes:
    """The answer to the client of ``session_id`` that it gets no duologue."""
    return b"%d ERROR %s" % (session_id, text.encode())


def read_answer(message: bytes, session_id: int, key: int) -> EchoAddress | Refused | Unreadable | None:
    """What an answer of all-clients says to the client of ``session_id``; None where it is meant for another."""
    match = _ANSWER.fullmatch(message)
    if match is None or int(match[1]) != session_id:
        return None
    if match[2] == b"ERROR":
        return Refused(match[3].decode("utf-8", "replace"))
    fields = _PLACE.fullmatch(match[3])
    if fields is None:
        return Unreadable(message)
    place = EchoAddress(int(fields[1]), int(fields[2]), int(fields[3], 16) ^ key)
    ports = {place.data_port, place.control_port}
    if 0 in ports or max(ports) > LARGEST_PORT or not FIRST_SESSION <= place.session_id <= LAST_SESSION + 1:
        return Unreadable(message)
    return place


def echo(payload: bytes) -> bytes:
    """Within a duologue: ask for, or give, the echo of ``payload``."""
    return _ECHO + payload


def read_echo(message: bytes) -> bytes | None:
    """What is to be echoed, or was; None where the message is something else."""
    return message[len(_ECHO) :] if message.startswith(_ECHO) else None


def failure(text: str) -> bytes:
    """Within a duologue: its end."""
    return b"ERROR " + text.encode()


def read_reply(message: bytes) -> bytes | Refused | Unreadable:
    """What the server says within a duologue: an echo's payload, or an ERROR."""
    payload = read_echo(message)
    if payload is not None:
        return payload
    if message.startswith(b"ERROR "):
        return Refused(message[len(b"ERROR ") :].decode("utf-8", "replace"))
    return Unreadable(message)
