"""Connections with the stream service of a server that a test stands in for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from aeron_spark.protocol.rpc_messages import Call
from aeron_spark.stream_client.operations import StreamOperations
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.wire.stream_requests import METHOD, SERVICE


class Operations(StreamOperations):
    """The operations of a client that has only its session."""

    def __init__(self, session: StreamSession) -> None:
        self._session = session

    def _stream_session(self) -> StreamSession:
        return self._session


class StreamCalls:
    """The remote calls of a connection: ``call`` gets each encoded request with its timeout in seconds."""

    def __init__(self, call: Callable[[bytes, float], bytes]) -> None:
        self._call = call

    def request(self, call: Call, timeout: float | None) -> tuple[bytes, str]:
        """Call the service. The calls have no names."""
        assert (call.target, call.method, call.kwargs) == (SERVICE, METHOD, None)
        assert timeout is not None
        (data,) = call.args
        return self._call(data, timeout), ""


def connection_of(call: Callable[[bytes, float], bytes]) -> Any:
    """Return a connection whose requests ``call`` responds to."""
    return SimpleNamespace(_core=SimpleNamespace(rpc=StreamCalls(call)))
