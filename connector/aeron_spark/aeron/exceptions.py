"""Converts Java exceptions to errors of this package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import jpype

from aeron_spark.aeron.attached_threads import enter_java
from aeron_spark.errors import AeronSparkError, ConnectError, TransportError
from aeron_spark.transport.addresses import UNKNOWN_HOST, unknown_host

CORRECT_CHANNEL: Final = "Correct 'channel', or add the host to this machine's name service."
# io.aeron.driver.media.UdpChannel: a RegistrationException carries the text of the driver's exception, not its class
_UNRESOLVED: Final = re.compile(
    r"UnknownHostException: .*?(?:endpoint|control|interface)=(?P<host>\[[^\]]+\]|[^:,\s]+)"
)


def describe(error: Any) -> str:
    """Return ``ShortClass: message`` of a Java throwable, without the category with which Aeron begins messages."""
    name = type(error).__name__.rpartition(".")[2]
    message = plain_message(str(error.getMessage()))
    return message if message.startswith(UNKNOWN_HOST) else f"{name}: {message}"


def plain_message(message: str) -> str:
    """Return an Aeron message without its category; replace the message about an unresolved host by ours."""
    unresolved = _UNRESOLVED.search(message)
    if unresolved is not None:
        return unknown_host(unresolved["host"])
    for category in ("ERROR - ", "FATAL - ", "WARN - "):
        message = message.removeprefix(category)
    return message


def archive_error_code(error: BaseException | None) -> int | None:
    """Return the code of an ArchiveException that caused ``error``, or None."""
    while error is not None:
        if type(error).__name__.endswith("ArchiveException"):
            return int(error.errorCode())  # type: ignore[attr-defined]
        error = error.__cause__
    return None


@contextmanager
def java_errors(action: str, *, unknown_host: str = "") -> Iterator[None]:
    """Convert a Java exception in the block to TransportError (ConnectError for a timeout) with ``action`` in its text.

    ``unknown_host`` is the remedy for a host name that cannot be resolved.
    """
    enter_java()
    try:
        yield
    except AeronSparkError:
        raise
    except jpype.JException as error:
        text = f"{action} failed: {describe(error)}"
        if "Timeout" in type(error).__name__:
            raise ConnectError(text, remedy="See 'aeron-spark doctor'.") from error
        remedy = unknown_host if f": {UNKNOWN_HOST} " in text else ""
        raise TransportError(text, remedy=remedy) from error
