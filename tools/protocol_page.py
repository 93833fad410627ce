"""Writes the generated parts of ``docs/endpoint-*.md``: ``python -m tools.protocol_page``.

A generated part is between ``<!-- generated: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, get_args

from aeron_spark.errors import REFUSALS, DataFormatError
from aeron_spark.protocol import client_handshake, server_handshake
from aeron_spark.protocol.frames import RecordKind, is_sequenced
from aeron_spark.protocol.handshake_payloads import Code
from aeron_spark.protocol.transitions import Row

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
_Table = Mapping[tuple[Any, Any], Row[Any, Any, Any]]
_PART: Final = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

MEANINGS: Final[dict[str, str]] = {
    "full": "the server has its maximum number of connections",
    "address-limit": "this address has its maximum number of connections",
    "key-limit": "this client key has its maximum number of connections",
    "not-permitted": "a filter refuses the address, the tag or the key, or the key is not allowed from this address",
    "version": "the server speaks another version of the protocol",
    "tag": "the tag is too long, unprintable, or not granted to this key",
    "message": "a packet is malformed, or is not a packet of a client",
    "key": "the client's key is not authorised, or has expired",
    "banned": "the server's operator has banned the address or the key for a time",
    "proof": "a proof failed: the shared secrets differ, one endpoint has none, or a packet was altered in transit",
    "ids": "no session id or stream id is free",
    "shutdown": "the server is shutting down",
    "rate": "too many handshakes per second from this address",
    "pending": "too many handshakes are pending",
    "schema": "a message type is different on the two endpoints",
    "session-lost": "the session to resume does not exist any more",
    "timeout": "a step of the handshake took too long, or the server lost the earlier steps",
    "server-error": "the server failed before its decision, for example in a filter",
}

RECORDS: Final[dict[RecordKind, str]] = {
    RecordKind.MESSAGE: "a message: u16 type id, body",
    RecordKind.MESSAGE_ACK_WANTED: "u64 number, then a message; without one: were all earlier messages delivered?",
    RecordKind.DELIVERED: "u64 number: listeners have returned from that message, and from all before it",
    RecordKind.CALL: "a remote call, see below",
    RecordKind.RETURN: "its result, or its error",
    RecordKind.OBJECT: "creates or ends a remote object, see below",
    RecordKind.TRANSFER_START: "a transfer begins, see below",
    RecordKind.TRANSFER_DATA: "a part of its bytes",
    RecordKind.TRANSFER_FINISHED: "it is complete",
    RecordKind.TRANSFER_FAILED: "an endpoint ended it early",
    RecordKind.REFUSED: "u64 number of a MESSAGE_ACK_WANTED, or 0, then the error: messages were not delivered",
    RecordKind.BATCH: "many records of one sequenced kind, see below",
    RecordKind.OPEN: "the first frame of a link: u64 received, u32 bytes of the longest message its sender accepts",
    RecordKind.ACK: "empty: the head of the frame has the number",
    RecordKind.PING: "u64 number",
    RecordKind.PONG: "the number of the ping",
    RecordKind.CLOSE: "u8: 0 everything ends, 1 the session is kept; then the error that is the reason, or nothing",
}


def listing(table: _Table) -> str:
    """List all rows of a table; events of a state with the same consequence share a row."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for (state, event), row in table.items():
        after = " or ".join(name.name for name in row.to)
        rows.setdefault((state.name, row.meaning, after), []).append(event.name)
    lines = ["| state | event | what is done | next state |", "|---|---|---|---|"]
    lines += [f"| {state} | {', '.join(events)} | {what} | {after} |" for (state, what, after), events in rows.items()]
    return "\n".join([*lines, ""])


def meanings(names: type[Enum], title: str) -> str:
    """List the states or events of a machine with their meanings."""
    lines = [f"| {title} | meaning |", "|---|---|", *(f"| {name.name} | {name.value} |" for name in names)]
    return "\n".join([*lines, ""])


def codes() -> str:
    """List the codes of refusals."""
    lines = ["| code | meaning | try again |", "|---|---|---|"]
    lines += [f"| `{code}` | {MEANINGS[code]} | {REFUSALS[code].retry.value} |" for code in get_args(Code)]
    return "\n".join([*lines, ""])


def records() -> str:
    """List the kinds of records."""
    lines = ["| kind | name | sequenced | payload |", "|---|---|---|---|"]
    for kind in RecordKind:
        sequenced = "yes" if is_sequenced(kind) else "no"
        lines.append(f"| {int(kind)} | {kind.name} | {sequenced} | {RECORDS[kind]} |")
    return "\n".join([*lines, ""])


PARTS: Final[dict[str, Callable[[], str]]] = {
    "client-table": lambda: listing(client_handshake.TRANSITIONS),
    "client-states": lambda: meanings(client_handshake.State, "state"),
    "client-events": lambda: meanings(client_handshake.Event, "event"),
    "server-table": lambda: listing(server_handshake.TRANSITIONS),
    "server-states": lambda: meanings(server_handshake.State, "state"),
    "server-events": lambda: meanings(server_handshake.Event, "event"),
    "codes": codes,
    "records": records,
}
"""The generator of each part, by the part's name."""


def fill_pages(pages: Mapping[str, str]) -> dict[str, str]:
    """Return pages with new generated parts. Raises DataFormatError if they lack one or have an unknown one."""
    named = [part["name"] for page in pages.values() for part in _PART.finditer(page)]
    if sorted(named) != sorted(PARTS):
        raise DataFormatError(
            f"the pages have the generated parts {', '.join(sorted(named))}, not {', '.join(sorted(PARTS))}",
            remedy="Put each between its marks, once.",
        )
    return {
        name: _PART.sub(lambda part: f"{part[1]}{PARTS[part['name']]()}{part[3]}", page) for name, page in pages.items()
    }


def read_pages() -> dict[str, str]:
    """Return the pages of the endpoint's protocol by their names in ``docs/``."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("endpoint-*.md"))}


def write_pages() -> None:
    """Write the pages with new generated parts."""
    for name, page in fill_pages(read_pages()).items():
        (DOCS / name).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write_pages()
