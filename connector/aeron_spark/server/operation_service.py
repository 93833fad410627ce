"""The operations of a server: decodes the requests of clients and of the operator, encodes responses and errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from aeron_spark.connection.peer_calls import Deferred
from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError
from aeron_spark.protocol.admin_messages import decode_request, encode_response
from aeron_spark.protocol.rpc_dispatch import BAD_ARGUMENTS, UNKNOWN_METHOD, PeerCall, unknown_failure
from aeron_spark.protocol.rpc_messages import Call, Create, Failure, decode_data_call, text_of
from aeron_spark.wire import stream_requests as rpc
from aeron_spark.wire.stream_requests import Request, Response


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


OperatorResult = Mapping[str, Any]
OperatorCommand = Callable[[Mapping[str, Any]], OperatorResult | Iterable[OperatorResult]]
"""Executes a command with its arguments, and returns one result, or several that are sent one by one.

Results have values that JSON has. An AeronSparkError becomes the error of the response.
"""


class OperatorService:
    """The commands of the server's operator; see protocol.admin_messages for the lines.

    Other parts of the server may add ``commands`` at any time. ``report`` takes the exceptions of commands that are not
    errors of this package.
    """

    def __init__(
        self, commands: Mapping[str, OperatorCommand], report: Callable[[BaseException], object]
    ) -> None:  # fmt: skip
        self._commands: Final = commands
        self._report: Final = report

    def respond(self, line: bytes) -> Iterator[bytes]:
        """Execute the line of a request, and yield the lines of the response."""
        try:
            name, arguments = decode_request(line)
            command = self._commands.get(name)
            if command is None:
                raise OptionError(
                    f"the server has no command {name[:64]!r}",
                    remedy="Use the aeron-spark command of the server's release.",
                )
            result = command(arguments)
            if isinstance(result, Mapping):
                yield encode_response(result)
                return
            for one in result:
                yield encode_response(one, has_more=True)
            yield encode_response(None)
        except AeronSparkError as error:
            yield encode_response(error)
        except Exception as error:
            self._report(error)
            failure = AeronSparkError(
                f"the command failed: {type(error).__name__}: {error}", remedy="See the server's log."
            )
            yield encode_response(failure)
