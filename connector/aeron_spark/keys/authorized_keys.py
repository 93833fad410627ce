"""The file of a server's authorised keys: ``[option ...] key [comment]`` per line; ``#`` begins a comment line.

    aeron-spark:Cq3…                                             everything
    streams=prices,trades:read aeron-spark:Kx9…  Alice's desk    two streams to read, and all calls
    streams=orders.*:read,write streams=prices:read calls=catalog.* tag=desk-7 aeron-spark:Zp0…

Options, without spaces:

    streams=NAMES[:ACTIONS]   allowed streams; actions are read, write, manage (default: all)
    calls=NAMES               allowed methods, as object.method
    tag=NAMES                 allowed tags

Names are separated by commas and may have ``*``, ``?`` and ``[...]``. A repeated option adds names. An option with an
empty value allows nothing. Without the option, everything of its kind is allowed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from aeron_spark.errors import AeronSparkError, DataFormatError, SetupError
from aeron_spark.keys import key_files
from aeron_spark.protocol.access import STREAM_ACTIONS, Grant
from aeron_spark.protocol.keypair import PREFIX, parse_public

OPTIONS: Final = ("streams", "calls", "tag")


def read_authorized(path: Path) -> Mapping[bytes, Grant]:
    """Return the grants by public key. Raises SetupError without the file, DataFormatError for a wrong line."""
    content = key_files.read_public(path)
    if content is None:
        raise SetupError(
            f"the file {path} of authorised keys does not exist", remedy="Create it with one public key per line."
        )
    try:
        return parse_authorized(content.decode(), str(path))
    except UnicodeDecodeError:
        raise DataFormatError(f"{path} is not UTF-8", remedy="Write the file in UTF-8.") from None


def parse_authorized(text: str, where: str) -> Mapping[bytes, Grant]:
    """Return the grants in the text of a file, by public key.

    Raises DataFormatError, with ``where`` and the line, for the first wrong line; then no key is authorised.
    """
    found: dict[bytes, Grant] = {}
    lines: dict[bytes, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            key, grant = _parse(line)
            if key in lines:
                raise DataFormatError(
                    f"its key is already on line {lines[key]}", remedy="Put all options of a key on one line."
                )
        except AeronSparkError as error:
            raise DataFormatError(f"line {number} of {where} is wrong: {error.what}", remedy=error.remedy) from None
        found[key], lines[key] = grant, number
    return found


def _parse(line: str) -> tuple[bytes, Grant]:
    options: dict[str, list[str]] = {}
    remaining = line.strip()
    while True:
        word, remaining = (*remaining.split(None, 1), "", "")[:2]
        if word.startswith(PREFIX):
            return parse_public(word), _grant(options, remaining)
        name, equals, value = word.partition("=")
        if not equals or name not in OPTIONS:
            raise _unknown(word, name)
        options.setdefault(name, []).append(value)


def _grant(options: Mapping[str, list[str]], comment: str) -> Grant:
    streams = None
    if "streams" in options:
        streams = tuple(pair for value in options["streams"] for pair in _streams(value))
    return Grant(streams, _names(options.get("calls")), _names(options.get("tag")), comment)


def _streams(value: str) -> Iterable[tuple[str, frozenset[str]]]:
    names, colon, actions = value.partition(":")
    allowed = actions.split(",") if colon else sorted(STREAM_ACTIONS)
    for action in allowed:
        if action not in STREAM_ACTIONS:
            near = difflib.get_close_matches(action, STREAM_ACTIONS, n=1)
            raise DataFormatError(
                f"unknown stream action {action!r}",
                remedy=f"Did you mean {near[0]!r}?" if near else f"Choose from {', '.join(sorted(STREAM_ACTIONS))}.",
            )
    return [(name, frozenset(allowed)) for name in _split(names)]


def _names(values: list[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(name for value in values for name in _split(value))


def _split(names: str) -> list[str]:
    found = names.split(",") if names else []
    if "" in found:
        raise DataFormatError(
            f"{names!r} has a comma without a name", remedy="Write a name before and after each comma."
        )
    return found


def _unknown(word: str, name: str) -> DataFormatError:
    if not word:
        return DataFormatError("it has no key", remedy=f"A key begins with {PREFIX!r}.")
    near = difflib.get_close_matches(name, OPTIONS, n=1)
    return DataFormatError(
        f"{word[:60]!r} is neither an option nor a key",
        remedy=f"Did you mean {near[0]!r}?"
        if near
        else f"Write one of the options {', '.join(OPTIONS)}, or a key, which begins with {PREFIX!r}.",
    )
