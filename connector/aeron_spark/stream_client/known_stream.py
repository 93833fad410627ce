"""A writer's knowledge of its stream, which it requests once and not for each transaction."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from aeron_spark.errors import OptionError
from aeron_spark.stream_client.admin import describe_stream
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.wire.stream_admin_rpc import StreamInfo, with_content

MAX_SCHEMAS: Final = 8  # that are remembered; a program that alternates between more stages its rows


class KnownStream:
    """A stream as its server described it. For one thread.

    The number of partitions and the content never change after the first rows. Until then, and after :meth:`forget`,
    each call of :meth:`describe` requests them.
    """

    def __init__(self, session: StreamSession, stream: str, found: StreamInfo | None = None) -> None:
        self.name = stream
        self._session = session
        self._found = found
        self._accepted: list[pa.Schema] = []  # of committed rows; the stream's own schema can have more columns

    def describe(self, timeout_s: float) -> StreamInfo:
        """Return the stream's description. Raises as :func:`describe_stream`."""
        if self._found is None or not self._found.content:
            self._found = describe_stream(self._session, self.name, timeout_s=timeout_s)
        return self._found

    def forget(self) -> None:
        """Request the description again: the stream may have been restored, or created again under this name."""
        self._found = None
        self._accepted.clear()

    def takes(self, payload: str, schema: pa.Schema | None) -> bool:
        """Whether the stream has rows of this payload and schema, so that the server has no reason to refuse them."""
        found = self._found
        if found is None or found.content != payload:
            return False
        return schema is None or schema == found.schema or schema in self._accepted

    def note_committed(self, payload: str, schema: pa.Schema | None) -> None:
        """Note that the server committed rows of this payload and schema (None: rows without one)."""
        if self._found is not None and not self._found.content:
            self._found = with_content(self._found, payload)
        if schema is not None and schema not in self._accepted:
            self._accepted = [*self._accepted[1 - MAX_SCHEMAS :], schema]


def check_partition(stream: str, partition: int, partitions: int) -> None:
    """Raise OptionError if the stream does not have the partition."""
    if not 0 <= partition < partitions:
        raise OptionError(
            f"stream {stream!r} has no partition {partition}",
            remedy=f"It has {partitions}, numbered from 0.",
            reason="no-partition",
        )
