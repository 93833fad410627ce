"""Prints ``docs/stream-requests.md``, or with ``--json`` ``docs/stream-requests.json``, from one table.

The table has a server's operations on streams. People read the page, and programs the file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from inspect import getdoc
from typing import Any, Final, get_args

from msgspec import NODEFAULT, Struct, inspect

from aeron_spark.errors import ERROR_CLASSES, REFUSALS
from aeron_spark.wire.stream_requests import METHOD, OPERATIONS, RESPONSES, SERVICE, Action, Operation

_HEAD: Final = f"""\
# Stream requests

This page answers: which requests does a server take for its streams, with which rules, and how does it respond?

It is made from the declarations in `wire/stream_requests.py`, for a client in another language. Such a client calls the
method `{METHOD}` of the remote object {SERVICE} with one argument, the bytes of a request;
[endpoint-messages.md](endpoint-messages.md) has the bytes of calls. The response, also bytes, is that of the request,
or `failure`. Both are MessagePack maps: `type` is the name below, and the other keys are the fields. A field with a
default, after `=`, may be left out; other keys are refused. Positions and sizes are in bytes, and times in nanoseconds
since 1970.

A client may send a request again after any failure: the server executes a repeated request only once, or, for
`open-stage` with rows, opens a further stage, which no commit names.

The table has the grants of which a client needs one on the stream, and when the server refuses a request: *end* while
it is about to end, *disk* while a disk is nearly full. [stream-requests.json](stream-requests.json) has all of this
for programs, with the bounds of numbers, texts and arrays, and the codes of errors.
"""


def stream_request_page() -> str:
    """Return the text of ``docs/stream-requests.md``."""
    lines = [_HEAD, "## Requests", "", "| request | grants | response | event of its success | refused |"]
    lines += ["|---|---|---|---|---|", *(_rules(kind, one) for kind, one in OPERATIONS.items()), ""]
    for kind in OPERATIONS:
        lines += _section(kind)
    lines += ["## Responses", ""]
    for response in RESPONSES:
        lines += _section(response)
    lines += ["## Structs in requests and responses", ""]
    for part in _structs():
        lines += _section(part) if part not in RESPONSES else ()
    return "\n".join(lines).rstrip() + "\n"


def stream_request_file() -> str:
    """Return the text of ``docs/stream-requests.json``.

    A field without the key ``default`` is required; an empty default of bytes is "". ``errors`` has the codes of a
    failure's error, and ``reasons`` when a refused request can succeed, by the reason of a RefusedError.
    """
    described = {
        "service": SERVICE,
        "method": METHOD,
        "repeatable": True,
        "requests": [
            _described(kind)
            | {
                "response": _title(operation.response), "actions": operation.actions, "event": operation.event or None,
                "begins": operation.begins, "writes": operation.writes,
            }
            for kind, operation in OPERATIONS.items()
        ],
        "responses": [_described(kind) for kind in RESPONSES],
        "structs": [_described(kind) for kind in _structs()],
        "errors": [
            {"code": code, "fault": kind.fault, "retriable": kind("").retriable} for code, kind in ERROR_CLASSES.items()
        ],
        "reasons": {reason: advice.retry.value for reason, advice in REFUSALS.items()},
    }  # fmt: skip
    return json.dumps(described, indent=1) + "\n"


def _structs() -> dict[type[Struct], None]:
    """Return the structs in requests and responses, each once."""
    return dict.fromkeys(part for kind in (*OPERATIONS, *RESPONSES) for part in _parts(inspect.type_info(kind), kind))


def _described(kind: type[Struct]) -> dict[str, Any]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return {
        "name": _title(kind),
        "type": info.tag,
        "meaning": " ".join((getdoc(kind) or "").replace("``", "`").split()),
        "fields": [
            {"name": field.encode_name, **_described_type(field.type)} | _described_default(field.default)
            for field in info.fields
        ],
    }


def _described_default(default: Any) -> dict[str, Any]:
    return {} if default is NODEFAULT else {"default": default.decode() if isinstance(default, bytes) else default}


def _described_type(kind: inspect.Type) -> dict[str, Any]:
    """Return a type with its bounds, as ``{"kind": ...}``."""
    bounds = {"ge": "minimum", "le": "maximum", "max_length": "longest"}
    found = {name: getattr(kind, bound) for bound, name in bounds.items() if getattr(kind, bound, None) is not None}
    match kind:
        case inspect.VarTupleType(item_type=item):
            return {"kind": "array", "items": _described_type(item), **found}
        case inspect.TupleType(item_types=items):
            return {"kind": "tuple", "items": [_described_type(item) for item in items]}
        case inspect.UnionType(types=types):
            return {"kind": "one of", "types": [_described_type(one) for one in types]}
        case inspect.StructType(cls=cls):
            return {"kind": "struct", "struct": _title(cls)}
        case _:
            return {"kind": _SIMPLE[type(kind)], **found}


_SIMPLE: Final[dict[type[inspect.Type], str]] = {
    inspect.StrType: "text", inspect.BytesType: "bytes", inspect.IntType: "integer", inspect.FloatType: "float",
    inspect.BoolType: "boolean", inspect.NoneType: "nil",
}  # fmt: skip


def _rules(kind: type[Struct], operation: Operation) -> str:
    actions = "any" if operation.actions == get_args(Action) else ", ".join(f"`{one}`" for one in operation.actions)
    refused = [*(["end"] if operation.begins else []), *(["disk"] if operation.writes else [])]
    cells = (f"`{_title(kind)}`", actions or "none", f"`{_title(operation.response)}`", operation.event or "")
    return f"| {' | '.join(cells)} | {', '.join(refused)} |"


def _title(kind: type[Struct]) -> str:
    return str(kind.__struct_config__.tag or kind.__name__)


def _section(kind: type[Struct]) -> Iterator[str]:
    yield from (f"### `{_title(kind)}`", "", (getdoc(kind) or "").replace("``", "`"), "")
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    if info.fields:
        fields = (
            f"`{field.encode_name}` {_type(field.type)}"
            + ("" if field.default is NODEFAULT else f" = {_value(field.default)}")
            for field in info.fields
        )
        yield from (f"Fields: {'; '.join(fields)}.", "")


def _value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "nil" if value is None else str(value).lower()
    return {"": '""', b"": "empty", (): "[]"}.get(value) or str(value).strip("b'")


def _type(kind: inspect.Type) -> str:
    """Return a type in words, without its bounds."""
    match kind:
        case inspect.VarTupleType(item_type=item):
            return f"array of ({_type(item)})"
        case inspect.TupleType(item_types=items):
            return f"array ({', '.join(map(_type, items))})"
        case inspect.UnionType(types=types):
            return " or ".join(map(_type, types))
        case inspect.StructType(cls=cls):
            return f"`{_title(cls)}`"
        case _:
            return _SIMPLE[type(kind)]


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
    sys.stdout.write(stream_request_file() if sys.argv[1:] == ["--json"] else stream_request_page())
