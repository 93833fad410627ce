"""Prints ``docs/stream-requests.md`` from the table of a server's operations on streams."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from inspect import getdoc
from typing import Any, Final

from msgspec import NODEFAULT, Struct, inspect

from aeron_spark.wire.stream_requests import METHOD, OPERATIONS, RESPONSES, SERVICE, Operation

_HEAD: Final = f"""\
# Stream requests

This page answers: which requests does a server take for its streams, with which rules, and how does it respond?

It is made from the declarations in `wire/stream_requests.py`, for a client in another language. Such a client calls the
method `{METHOD}` of the remote object {SERVICE} with one argument, the bytes of a request;
[endpoint-protocol.md](endpoint-protocol.md) has the bytes of calls. The response, also bytes, is that of the request,
or `failure`. Both are MessagePack maps: `type` is the name below, and the other keys are the fields. A field with a
default may be left out; other keys are refused. Positions and sizes are in bytes, and times in nanoseconds since 1970.

A client may send a request again after any failure: the server executes a repeated request only once, or, for
`open-stage` with rows, opens a further stage, which no commit names.
"""


def stream_request_page() -> str:
    """Return the text of ``docs/stream-requests.md``."""
    parts = dict.fromkeys(part for kind in (*OPERATIONS, *RESPONSES) for part in _parts(inspect.type_info(kind), kind))
    lines = [_HEAD, "## Requests", ""]
    for kind, operation in OPERATIONS.items():
        lines += _section(kind, _rules(operation))
    lines += ["## Responses", ""]
    for response in RESPONSES:
        lines += _section(response, [])
    lines += ["## Structs in requests and responses", ""]
    for part in parts:
        lines += _section(part, [])
    return "\n".join(lines).rstrip() + "\n"


def _rules(operation: Operation) -> list[str]:
    actions = " or ".join(f"`{action}`" for action in operation.actions)
    sentences = [f"Needs the grant {actions} on the stream." if actions else "Needs no grant."]
    if operation.begins:
        sentences.append("Refused while the server is about to end.")
    if operation.writes:
        sentences.append("Refused while a disk is nearly full.")
    if operation.event:
        sentences.append(f"Its success is the event `{operation.event}`.")
    return [f"{' '.join(sentences)} Response: `{_title(operation.response)}`.", ""]


def _title(kind: type[Struct]) -> str:
    return str(kind.__struct_config__.tag or kind.__name__)


def _section(kind: type[Struct], rules: Iterable[str]) -> Iterator[str]:
    yield from (f"### `{_title(kind)}`", "", (getdoc(kind) or "").replace("``", "`"), "", *rules)
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    if info.fields:
        yield from ("| field | type | default |", "|---|---|---|")
        for field in info.fields:
            default = "" if field.default is NODEFAULT else f"`{_value(field.default)}`"
            yield f"| `{field.encode_name}` | {_type(field.type)} | {default} |"
        yield ""


def _value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "nil" if value is None else str(value).lower()
    return {"": '""', b"": "empty", (): "[]"}.get(value) or str(value).strip("b'")


def _type(kind: inspect.Type) -> str:
    """Return a type and its bounds in words."""
    longest = getattr(kind, "max_length", None)
    limit = "" if longest is None else f", at most {longest:,}"
    match kind:
        case inspect.StrType():
            return "text" + (f"{limit} characters" if limit else "")
        case inspect.BytesType():
            return "bytes" + limit
        case inspect.VarTupleType(item_type=item):
            return f"array of ({_type(item)}){limit}"
        case inspect.TupleType(item_types=items):
            return f"array: {'; '.join(map(_type, items))}"
        case inspect.UnionType(types=types):
            return " or ".join(map(_type, types))
        case inspect.StructType(cls=cls):
            return f"`{_title(cls)}`"
        case inspect.IntType(ge=low, le=high):
            return "integer" + (f", at least {low}" if high is None and low is not None else "")
        case inspect.FloatType(ge=low, le=high):
            return "float" + (f", {low:g} to {high:g}" if low is not None and high is not None else "")
        case inspect.BoolType():
            return "boolean"
        case _:
            return "nil"


def _parts(kind: inspect.Type, of: type[Struct] | None = None) -> Iterator[type[Struct]]:
    """Yield the structs in a type, without that of the class ``of``."""
    if isinstance(kind, inspect.StructType):
        if kind.cls is not of:
            yield kind.cls
        inner: tuple[inspect.Type, ...] = tuple(field.type for field in kind.fields)
    else:
        inner = (*getattr(kind, "types", ()), *getattr(kind, "item_types", ()))
        inner += (kind.item_type,) if isinstance(kind, inspect.VarTupleType) else ()
    for part in inner:
        yield from _parts(part)


if __name__ == "__main__":
    sys.stdout.write(stream_request_page())
