"""``docs/options.md``, made from the table, so that it cannot say anything else than the code does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from aeron_spark.options.row import BATCH_READ, CLIENT, ENDPOINT, READING, SERVER, WRITING, Option, Route, ValueType
from aeron_spark.options.table import TABLE

_HEAD = """\
# Options

Generated from the option table (`make docs`); a test keeps it true. Names are read without regard to case, as
everywhere in Spark. Unknown options are refused, except those that Spark itself passes to a source or a sink.

Sizes are bytes, or `512KiB`, `64MiB`, `1GiB`, `1TiB` (powers of 1024). Durations are `100ms`, `30s`, `15min`, `1h`,
`7d`, or plain seconds. `2m` is 2 MiB for a size and 2 minutes for a duration: write `2MiB` and `2min`.
Positions are stream positions of a recording, in bytes: where a message begins, always a multiple of 32.
"""

_ENDPOINT: Final = """\
## The secure endpoint

A server and a client of the secure endpoint take the options below. `maxConnections` is `--max-connections` on the
command line, `max_connections=` in Python, and `maxConnections` in a server's TOML file, at its top or in the table
`[server]`. There, and in Python, numbers, true and false, and lists may stand for their texts. Options that nobody
knows, and options that contradict each other, are refused. In Spark those of a client stand beside `server`, spelt as
here; `identity`, `aeronDir`, `serverKey` and `connectTimeout` are those above.
"""


# they say which way it is
_NAMING: Final = ("channel", "streamId", "server", "stream")
_OF_WAY: Final = {Route.DIRECT: "Direct way only. ", Route.SERVER: "Through a server only. "}


def markdown() -> str:
    """Give the whole text of ``docs/options.md``."""
    shared = [option for option in TABLE if option.where & READING and option.where & WRITING]
    reading = [option for option in TABLE if option.where <= READING]
    writing = [option for option in TABLE if option.where <= WRITING]
    spark = (
        ("Reaching a stream (reading and writing)", shared),
        ("Reading", reading),
        ("Writing", writing),
    )
    endpoint = (
        ("A server and a client", [option for option in TABLE if option.where == ENDPOINT]),
        ("A server", [option for option in TABLE if option.where == SERVER]),
        ("A client", [option for option in TABLE if option.where == CLIENT]),
    )
    parts = [_HEAD, *_sections("##", spark), _ENDPOINT, *_sections("###", endpoint)]
    return "\n".join(parts)


def _sections(level: str, sections: Sequence[tuple[str, Sequence[Option]]]) -> Iterator[str]:
    for title, options in sections:
        lines = [f"{level} {title}", "", "| option | default | value | meaning |", "|---|---|---|---|"]
        lines += [_row(option) for option in options]
        yield "\n".join(lines) + "\n"


def _row(option: Option) -> str:
    meaning = f"Batch only. {option.meaning}" if option.where == BATCH_READ else option.meaning
    meaning = _OF_WAY[option.way] + meaning if option.way is not None and option.name not in _NAMING else meaning
    cells = (f"`{option.name}`", _default(option), _value(option), meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(option: Option) -> str:
    if option.shown_default is not None:
        return option.shown_default
    if option.default is None:
        return "none"
    if option.batch_default is not None:
        return f"`{option.default}` (stream), `{option.batch_default}` (batch)"
    return f"`{option.default}`"


def _value(option: Option) -> str:
    if option.kind is ValueType.CHOICE:
        return ", ".join(f"`{name}`" for name in option.choices)
    return f"{option.kind.value}, e.g. `{option.example}`"
