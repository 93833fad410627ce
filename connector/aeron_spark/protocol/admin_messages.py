"""The messages of a server's admin socket: JSON objects, each one line of UTF-8.

    request    {"version": 1, "command": "status", "arguments": {}}
    response   {"version": 1, "more": true, "result": {...}}       any number of lines with ``more``, then one without
               {"version": 1, "more": false, "result": {...}}      ``result`` is absent if earlier lines have it all
               {"version": 1, "more": false, "error": {...}}       an object of code, what, remedy and reason

A connection has one request. A receiver ignores unknown members; another version is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aeron_spark.errors import AeronSparkError, DataFormatError, decode_error, encode_error
from aeron_spark.strict_json import parse_json

VERSION: Final = 1
MAX_REQUEST_BYTES: Final = 64 << 10
SOCKET_NAME: Final = "admin.sock"  # in the folder of streams, without the option adminSocket
_SAME_RELEASE: Final = "Use the aeron-spark command of the server's release."


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """A command and its arguments."""

    command: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AdminResponse:
    """One line of a response: a result, an error, or neither at the end of several lines."""

    result: Mapping[str, Any] | None = None
    error: AeronSparkError | None = None
    has_more: bool = False


def encode_request(request: AdminRequest) -> bytes:
    """Return the line of a request. Raises TypeError or ValueError for a value that JSON does not have."""
    return _line({"command": request.command, "arguments": dict(request.arguments)})


def decode_request(line: bytes) -> AdminRequest:
    """Decode the line of a request. Raises DataFormatError, also for a line that is too long."""
    if len(line) > MAX_REQUEST_BYTES:
        raise DataFormatError(
            f"a request is longer than {MAX_REQUEST_BYTES} bytes", remedy="Give the command fewer arguments."
        )
    fields = _fields(line)
    command, arguments = fields.get("command"), fields.get("arguments", {})
    if not isinstance(command, str) or not isinstance(arguments, dict):
        raise DataFormatError("a request needs a command and arguments", remedy=_SAME_RELEASE)
    return AdminRequest(command, arguments)


def encode_response(response: AdminResponse) -> bytes:
    """Return one line of a response. Raises TypeError or ValueError for a value that JSON does not have."""
    fields: dict[str, Any] = {"more": response.has_more}
    if response.error is not None:
        fields["error"] = json.loads(encode_error(response.error))
    elif response.result is not None:
        fields["result"] = dict(response.result)
    return _line(fields)


def decode_response(line: bytes) -> AdminResponse:
    """Decode one line of a response. Raises DataFormatError."""
    fields = _fields(line)
    result, error, more = fields.get("result"), fields.get("error"), fields.get("more", False)
    if not isinstance(more, bool) or not (result is None or isinstance(result, dict)):
        raise DataFormatError("a response has a member of another type", remedy=_SAME_RELEASE)
    if error is not None:
        return AdminResponse(error=decode_error(json.dumps(error).encode()))
    return AdminResponse(result, has_more=more)


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps({"version": VERSION, **fields}, allow_nan=False).encode() + b"\n"


def _fields(line: bytes) -> dict[str, Any]:
    try:
        fields = parse_json(line.decode())
    except ValueError as error:
        raise DataFormatError(f"a line is not JSON: {error}", remedy=_SAME_RELEASE) from None
    if not isinstance(fields, dict):
        raise DataFormatError("a line is not a JSON object", remedy=_SAME_RELEASE)
    if fields.get("version") != VERSION:
        raise DataFormatError(
            f"a line has version {str(fields.get('version'))[:20]}, expected {VERSION}", remedy=_SAME_RELEASE
        )
    return fields
