"""Passes encoded requests to the stream service as a connection does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aeron_spark.endpoint.peer_calls import Deferred
from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.rpc_dispatch import PeerCall
from aeron_spark.protocol.rpc_messages import Call, encode_call
from aeron_spark.server.stream_operations import OperationService
from aeron_spark.wire.stream_requests import METHOD, SERVICE


def call_of(service: OperationService, data: bytes) -> PeerCall:
    """Return the call of a peer that sends this request."""
    call = Call(SERVICE, METHOD, (data,))
    payload = encode_call(1, call, Types(), None)
    assert service.look_up(call) is None
    return PeerCall(1, service, SERVICE, payload, call, None, len(payload), 0.0, "a call")


def handle(service: OperationService, data: bytes) -> bytes | Deferred:
    """Have the service run a request; return the encoded response, now or later."""
    call = call_of(service, data)
    return _handled(service, call, lambda: service.run(call))


def _handled(service: OperationService, call: PeerCall, run: Callable[[], Any]) -> bytes | Deferred:
    result: Any = None
    error: AeronSparkError | None = None
    try:
        result = run()
    except AeronSparkError as raised:
        error = raised
    if isinstance(result, Deferred):
        return Deferred(result.awaited, lambda: _handled(service, call, result.finish))
    return service.encode(call, result, error)
