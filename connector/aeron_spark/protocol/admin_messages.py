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
from typing import Any, Final

from aeron_spark.errors import AeronSparkError, DataFormatError, decode_error, encode_error
from aeron_spark.texts import parse_json

VERSION: Final = 1
MAX_REQUEST_BYTES: Final = 64 << 10
SOCKET_NAME: Final = "admin.sock"  # in the folder of streams, without the option adminSocket
_SAME_RELEASE: Final = "Use the aeron-spark command of the server's release."


def encode_request(command: str, arguments: Mapping[str, Any]) -> bytes:
    """Return the line of a request. Raises TypeError or ValueError for a value that JSON does not have."""
    return _line({"command": command, "arguments": dict(arguments)})


def decode_request(line: bytes) -> tuple[str, Mapping[str, Any]]:
    """Return the command of a request and its arguments. Raises DataFormatError, also for a line that is too long."""
    if len(line) > MAX_REQUEST_BYTES:
        raise DataFormatError(
            f"a request is longer than {MAX_REQUEST_BYTES} bytes", remedy="Give the command fewer arguments."
        )
    fields = _fields(line)
    command, arguments = fields.get("command"), fields.get("arguments", {})
    if not isinstance(command, str) or not isinstance(arguments, dict):
        raise DataFormatError("a request needs a command and arguments", remedy=_SAME_RELEASE)
    return command, arguments


def encode_response(outcome: Mapping[str, Any] | AeronSparkError | None, *, has_more: bool = False) -> bytes:
    """Return one line of a response: a result, an error, or neither at the end of several lines.

    Raises TypeError or ValueError for a value that JSON does not have.
    """
    fields: dict[str, Any] = {"more": has_more}
    if isinstance(outcome, AeronSparkError):
        fields["error"] = json.loads(encode_error(outcome))
    elif outcome is not None:
        fields["result"] = dict(outcome)
    return _line(fields)


def decode_response(line: bytes) -> tuple[Mapping[str, Any] | AeronSparkError | None, bool]:
    """Return the result or the error in a line of a response, and whether more lines follow. Raises DataFormatError."""
    fields = _fields(line)
    result, error, more = fields.get("result"), fields.get("error"), fields.get("more", False)
    if not isinstance(more, bool) or not (result is None or isinstance(result, dict)):
        raise DataFormatError("a response has a member of another type", remedy=_SAME_RELEASE)
    if error is not None:
        return decode_error(json.dumps(error).encode()), False
    return result, more


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
