"""The decoders of requests to the stream service, and of its responses."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec
from msgspec import inspect

from aeron_spark.errors import AeronSparkError, OptionError, encode_error
from aeron_spark.wire import stream_requests
from tests.unit.fuzz.forms import colliding_numbers, messagepack
from tests.unit.fuzz.fuzzing import Decoder
from tests.unit.fuzz.stream_decoders import random_epochs
from tests.unit.fuzz.values import random_value

_REQUESTS: Final = tuple(inspect.type_info(kind) for kind in stream_requests.OPERATIONS)
_RESPONSES: Final = tuple(inspect.type_info(kind) for kind in stream_requests.RESPONSES)


_GIVEN: Final[dict[str, Callable[[Random], Any]]] = {
    "epochs": lambda source: random_epochs(source).to_bytes(),
    "error": lambda source: encode_error(OptionError("wrong", remedy="right")),
}


def _request(source: Random) -> bytes:
    request: Any = random_value(source.choice(_REQUESTS), source, _GIVEN)
    return stream_requests.encode_request(request)


def _response(source: Random) -> bytes:
    response: Any = random_value(source.choice(_RESPONSES), source, _GIVEN)
    return stream_requests.encode_response(response)


def _requests_by_tag() -> dict[bytes, Any]:
    """Return a request for each response, by the tag of the response."""
    source = Random(1)
    found: dict[bytes, Any] = {}
    for kind in _REQUESTS:
        request: Any = random_value(kind, source, _GIVEN)
        tag = stream_requests.OPERATIONS[type(request)].response.__struct_config__.tag
        found[str(tag).encode()] = request
    return found


_BY_TAG: Final = _requests_by_tag()


def _decode_response(data: bytes) -> Any:
    request = _BY_TAG.get(data[7 : 7 + (data[6] & 31)] if len(data) > 6 else b"", _BY_TAG[b"done"])
    return stream_requests.decode_response(request, data)


def _long_requests(size: int) -> dict[str, bytes]:
    keys = colliding_numbers(size // 6)
    part, transaction = stream_requests.StagedPart("", 0, 0, 0), stream_requests.Transaction("", "", 0)
    requests: dict[str, Any] = {
        "partitions": stream_requests.MeasureLags("", tuple((key, 0) for key in keys)),
        "a map": {"type": "measure-lags", "stream": "", "positions": dict.fromkeys(keys, 0)},
        "many numbers": stream_requests.AwaitCommits("", (0,) * size, 1.0),
        "many parts": stream_requests.CommitTransaction("", transaction, (part,) * (size // 28), 0, 1.0),
    }
    return {name: msgspec.msgpack.encode(request) for name, request in requests.items()}


def _long_responses(size: int) -> dict[str, bytes]:
    lags = tuple((key, 0) for key in colliding_numbers(size // 6))
    return {"partitions": stream_requests.encode_response(stream_requests.ReaderLags(lags))}


SERVICE: Final = (
    Decoder(
        "stream request",
        stream_requests.decode_request,
        _request,
        messagepack(),
        use=stream_requests.encode_request,
        long_samples=_long_requests,
    ),
    Decoder(
        "stream response",
        _decode_response,
        _response,
        messagepack(),
        (AeronSparkError,),
        use=stream_requests.encode_response,
        long_samples=_long_responses,
    ),
)
