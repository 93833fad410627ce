"""The texts that only options of the secure endpoint have. Each parser raises ``ValueError`` saying what it expects."""

from __future__ import annotations

import re
from typing import Final

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.protocol.access import Network
from aeron_spark.protocol.keypair import PREFIX, parse_public
from aeron_spark.transport.addresses import HostPort
from aeron_spark.transport.endpoint_channels import server_address

ENVIRONMENT: Final = "env:"

_NUMBER: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
# 32 bytes as hex, or as base64 of either alphabet; a path that looks so can begin with "./"
_KEY: Final = re.compile(r"[0-9A-Fa-f]{64}|[A-Za-z0-9+/_-]{43}=|[A-Za-z0-9+_-]{43}|[A-Za-z0-9+][A-Za-z0-9+/]{42}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SPAN: Final = re.compile(r"(\d{1,10})\s*-\s*(\d{1,10})", re.ASCII)


def number(text: str, low: int, high: int) -> float:
    """Parse a number from ``low`` to ``high``, such as 0.5."""
    value = float(text) if _NUMBER.fullmatch(text) else -1.0
    if not low <= value <= high:
        raise ValueError(f"a number of at least {low}, such as 10 or 0.5")
    return value


def span(text: str, low: int, high: int) -> tuple[int, int]:
    """Parse ``first-last``, both from ``low`` to ``high`` and included."""
    match = _SPAN.fullmatch(text)
    first, last = (int(match[1]), int(match[2])) if match else (-1, -1)
    if not low <= first <= last <= high:
        raise ValueError(f"a range such as {low}-{high}, the first not after the last")
    return first, last


def networks(text: str) -> tuple[Network, ...]:
    """Parse networks or addresses, separated by commas. Raises OptionError for one that is none."""
    return tuple(Network.parse(part.strip()) for part in text.split(","))


def public_key(text: str) -> bytes:
    """Parse a public key as ``aeron-spark keys show`` prints it. Raises OptionError for what is none."""
    try:
        return parse_public(text)
    except DataFormatError as error:
        raise OptionError(error.what, remedy=error.remedy) from None


def public_keys(text: str) -> tuple[bytes, ...]:
    """Parse public keys, separated by commas. Raises OptionError for one that is none."""
    return tuple(public_key(part.strip()) for part in text.split(","))


def servers_file(text: str) -> str | None:
    """Take the path behind ``@``, of a file that lists servers; None where the servers themselves are given."""
    if not text.startswith("@"):
        return None
    if not text[1:].strip():
        raise OptionError("there is no path behind '@'", remedy="Give such as @/etc/aeron-spark/servers")
    return text[1:].strip()


def servers(text: str) -> tuple[tuple[str, str], ...]:
    """Parse servers' addresses, separated by commas: for each its name, ``host:port``, and its whole address.

    Raises OptionError for what is no address on a network, and for a server that stands there twice.
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        place = server_address(part).place
        if place.media == "ipc":
            raise OptionError(
                f"the address {part.strip()!r} names no server to other machines",
                remedy="Give host:port; a server of this machine is reached over its shared memory all the same",
            )
        name = str(HostPort(place.host, place.data_port))
        if name in found:
            raise OptionError(f"the server {name} is given twice", remedy="Give it once")
        found[name] = f"{name}:{place.control_port}"
    return tuple(found.items())


def identity(text: str) -> str:
    """Take where a key is: a path, a name, or ``env:NAME``. Raises OptionError for what looks like a key itself.

    The error does not repeat the text: options are shown in Spark's UI and logs, and so are errors.
    """
    if text.startswith(ENVIRONMENT):
        if not _VARIABLE.fullmatch(text[len(ENVIRONMENT) :]):
            raise _a_secret("what follows 'env:' is no name of a variable")
        return text
    if text.startswith(PREFIX):
        raise OptionError("it is a public key", remedy="Name the file of this side's own key, or env:NAME")
    if _KEY.fullmatch(text) or "\n" in text or "private:" in text or "PRIVATE KEY" in text:
        raise _a_secret("it looks like a key itself, and Spark shows options in its UI and logs")
    return text


def _a_secret(what: str) -> OptionError:
    return OptionError(
        what,
        remedy="Name the file of the key, send it along with spark.addFile and give its name, or put the key into a "
        "variable of the driver's and the executors' environment and give env:NAME. A key that stood here is known to "
        "others: make another with 'aeron-spark keys new'",
    )
