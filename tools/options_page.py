"""Prints ``docs/options.md`` from the declarations of the options."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from aeron_spark.options.declaration import (
    BATCH_READ,
    CLIENT,
    ENDPOINT,
    READING,
    SERVER,
    WRITING,
    Format,
    Option,
    Route,
    all_options,
)

_HEAD: Final = """\
# Options

Generated from the declarations of the options by `make docs`. Names are case-insensitive, as in Spark. Unknown options
are refused, except those that Spark itself passes to a source or a sink. `format("aeron-jvm")` has only the direct
route, so it refuses the options of the route through a server.

Sizes are bytes, or `512KiB`, `64MiB`, `1GiB`, `1TiB` (powers of 1024). Durations are `100ms`, `30s`, `15min`, `1h`,
`7d`, or plain seconds. `2m` is 2 MiB for a size and 2 minutes for a duration: write `2MiB` and `2min`.
A position is a number of bytes in a recording at which a message begins, always a multiple of 32.
"""

_ENDPOINT: Final = """\
## The secure endpoint

These are the options of a server and a client of the secure endpoint. `maxConnections` is `--max-connections` on the
command line, `max_connections=` in Python, and `maxConnections` in a server's TOML file, at its top or in the table
`[server]`. TOML files and Python may also give numbers, booleans and lists instead of texts. Unknown options, and
options that contradict each other, are refused. In Spark, the client options below may be given together with
`server`; `identity`, `aeronDir`, `serverKey` and `connectTimeout` have the meanings above.
"""


_NAMING: Final = ("channel", "streamId", "server", "stream")  # they select the route
_OF_ROUTE: Final = {Route.DIRECT: "Direct route only. ", Route.SERVER: "Only through a server. "}


def options_page() -> str:
    """Return the text of ``docs/options.md``."""
    options = all_options()
    sbe = [one for one in options if one.argument.startswith("sbe_")]
    shared = [one for one in options if one.where & READING and one.where & WRITING and one not in sbe]
    reading = [one for one in options if one.where <= READING and one not in sbe]
    writing = [one for one in options if one.where <= WRITING]
    spark = (
        ("Route to a stream (reading and writing)", shared),
        ("Reading", reading),
        ("SBE messages (`payload=sbe`, reading and writing)", [one for one in sbe if one.where & WRITING]),
        ("Reading SBE messages (`payload=sbe`)", [one for one in sbe if not one.where & WRITING]),
        ("Writing", writing),
    )
    endpoint = (
        ("Server and client", [one for one in options if one.where == ENDPOINT]),
        ("Server", [one for one in options if one.where == SERVER]),
        ("Client", [one for one in options if one.where == CLIENT]),
    )
    parts = [_HEAD, *_sections("##", spark), _ENDPOINT, *_sections("###", endpoint)]
    return "\n".join(parts)


def _sections(level: str, sections: Sequence[tuple[str, Sequence[Option]]]) -> Iterator[str]:
    for title, options in sections:
        lines = [f"{level} {title}", "", "| option | default | value | meaning |", "|---|---|---|---|"]
        lines += [_row(one) for one in options]
        yield "\n".join(lines) + "\n"


def _row(one: Option) -> str:
    meaning = f"Batch only. {one.meaning}" if one.where == BATCH_READ else one.meaning
    if one.formats == {Format.AERON_JVM}:
        meaning = f'Only in `format("aeron-jvm")`. {meaning}'
    elif one.formats == {Format.AERON} and one.route is Route.DIRECT:
        meaning = f'Not in `format("aeron-jvm")`. {meaning}'
    meaning = _OF_ROUTE[one.route] + meaning if one.route is not None and one.name not in _NAMING else meaning
    cells = (f"`{one.name}`", _default(one), _value(one), meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(one: Option) -> str:
    if one.shown_default is not None:
        return one.shown_default
    if one.default is None:
        return "none"
    if one.batch_default is not None:
        return f"`{one.default}` (stream), `{one.batch_default}` (batch)"
    return f"`{one.default}`"


def _value(one: Option) -> str:
    if one.type.choices:
        return ", ".join(f"`{name}`" for name in one.type.choices)
    # A default shows how a value is written.
    return one.type.label if one.default is not None else f"{one.type.label}, e.g. `{one.example}`"


if __name__ == "__main__":
    sys.stdout.write(options_page())
