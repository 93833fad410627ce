"""The encoded rows of a small transaction, or of a task with few rows, until one request carries them to the server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from aeron_spark.aeron.checksum import crc32
from aeron_spark.wire.chunk import Header, Payload
from aeron_spark.wire.staged_items import encode_group_item, encode_values_item
from aeron_spark.wire.stream_rpc import InlinePart

# Of one request: with its other fields it fits into one message, whose smallest limit is 128 KiB. A stage over a bulk
# link costs two round trips, in which a network carries about so many bytes.
MAX_INLINE_BYTES: Final = 64 << 10
PART_BYTES: Final = 256  # counted for each part: its other fields take fewer


@dataclass(slots=True)
class InlineRoom:
    """The bytes that one request can still carry, negative if it has too many.

    It is the commit request of a transaction, or the request that stages the rows of a task.
    """

    left: int = MAX_INLINE_BYTES


@dataclass(frozen=True, slots=True)
class InlineRequest:
    """A request that carries rows of a task, while it has room for them.

    ``message_limit`` is the longest message of the stream, in bytes. The request is one that opens a stage, or the
    commit request.
    """

    room: InlineRoom
    message_limit: int
    opens_stage: bool = False


class InlineRows:
    """Collects the items of one task's rows. Implements ``RowSink``. Copies them: the caller may reuse its memory."""

    def __init__(self, room: InlineRoom) -> None:
        self.items = bytearray()
        self._room = room
        self.count(PART_BYTES)

    @property
    def has_too_many(self) -> bool:
        """Whether the request cannot carry all the rows."""
        return self._room.left < 0

    def has_room(self, size: int) -> bool:
        """Whether rows of ``size`` bytes may fit; their items are larger."""
        return size <= self._room.left

    def count(self, size: int) -> None:
        """Count ``size`` bytes that the request carries besides the items."""
        self._room.left -= size

    def put_values(self, values: pa.Array[Any], reserved: pa.Array[Any] | None) -> None:
        """Take values that become one message each."""
        self._put(encode_values_item(values, reserved))

    def put_group(self, header: Header, payload: Payload | Sequence[pa.Buffer], reserved: int) -> None:
        """Take a group; ``reserved`` is not sent."""
        self._put(encode_group_item(header, payload))

    def truncate(self, size: int) -> None:
        """Keep the first ``size`` bytes of the items only."""
        self._room.left += len(self.items) - size
        del self.items[size:]

    def part(self, partition: int | None, task: int, content: str, schema: bytes, rows: int) -> InlinePart:
        """Return the part of the commit request."""
        items = bytes(self.items)
        return InlinePart(partition, task, content, schema, rows, items, crc32(items))

    def _put(self, buffers: Iterable[pa.Buffer]) -> None:
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            self.items += view
            self._room.left -= view.nbytes
