"""Serves typed requests, each as a call with one argument: decodes requests, encodes their responses and errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from aeron_spark.connection.peer_calls import Deferred
from aeron_spark.errors import AeronSparkError, DataFormatError
from aeron_spark.protocol.rpc_dispatch import BAD_ARGUMENTS, UNKNOWN_METHOD, PeerCall, unknown_failure
from aeron_spark.protocol.rpc_messages import Call, Create, Failure, decode_data_call, text_of
from aeron_spark.wire import stream_rpc as rpc
from aeron_spark.wire.stream_admin_rpc import Request, Response


class OperationService(ABC):
    """The stream requests of one connection's client, as a service of the endpoint.

    The AeronSparkError of a request is its response.
    """

    @abstractmethod
    def check(self, kind: type[Request[Any]], stream: str) -> None:
        """Raise the reason if the client may not send this class of request for a stream.

        Called before the request is decoded, so that a request costs nothing without the grant.
        """

    @abstractmethod
    def execute(self, request: rpc.AnyRequest) -> Response | Deferred:
        """Execute a request, and return its response, now or later. Raises AeronSparkError if it fails."""

    def look_up(self, head: Call | Create) -> Failure | None:
        """Refuse another method than that of requests."""
        name = head.method if isinstance(head, Call) else head.factory
        return None if name == rpc.METHOD else unknown_failure(UNKNOWN_METHOD, "method", name, (rpc.METHOD,))

    def run(self, call: PeerCall) -> Response | Deferred | Failure:
        """Decode the request, and execute it."""
        try:
            data = decode_data_call(call.payload)
        except DataFormatError as error:
            return Failure(BAD_ARGUMENTS, text_of(error))
        call.what = "a request"
        head = rpc.decode_head(data)
        call.what = head.kind.__name__
        self.check(head.kind, head.stream)
        request = call.request = head.decode()
        return self.execute(request)

    def encode(self, call: PeerCall, result: Any, error: AeronSparkError | None) -> bytes:
        """Encode the response, or the error."""
        return rpc.encode_response(result if error is None else rpc.failure_of(error))
