"""Constants that Java and Python both define: a difference would break a protocol without an error."""

from __future__ import annotations

import pytest

from aeron_spark.aeron import guard, inbox
from aeron_spark.aeron.jvm import jclass
from aeron_spark.protocol import ids
from aeron_spark.transport import api
from aeron_spark.wire import chunks

SHARED = {
    "driver.HandshakeStream.ID": (api.HANDSHAKE_STREAM_ID, ids.HANDSHAKE_STREAM_ID),
    "inbox.InboxRecords.HEADER_LENGTH": (inbox.RECORD.size,),
    "inbox.InboxRecords.MESSAGE": (inbox.MESSAGE,),
    "inbox.InboxRecords.IMAGE_AVAILABLE": (inbox.IMAGE_AVAILABLE,),
    "inbox.InboxRecords.IMAGE_UNAVAILABLE": (inbox.IMAGE_UNAVAILABLE,),
    "inbox.InboxRecords.PUBLICATION_REJECTED": (inbox.PUBLICATION_REJECTED,),
    "inbox.InboxRecords.SUBSCRIPTION_FAILED": (inbox.SUBSCRIPTION_FAILED,),
    "inbox.InboxRecords.IMAGE_AVAILABLE_LATE": (inbox.IMAGE_AVAILABLE_LATE,),
    "guard.DropCounters.COUNTER_TYPE_ID": (guard.DROP_TYPE,),
    "guard.OwnerRegistry.COUNTER_TYPE_ID": (guard.OWNER_TYPE,),
    "guard.OwnerRegistry.LAYOUT": (guard.OWNER_LAYOUT,),
    "guard.OwnerRegistry.RECEIVED": (guard.DIRECTIONS["received"],),
    "guard.OwnerRegistry.PUBLISHED": (guard.DIRECTIONS["published"],),
    "wire.ChunkLayout.MAGIC": (int.from_bytes(chunks.MAGIC, "little"),),
    "wire.ChunkLayout.VERSION": (chunks.VERSION,),
    "wire.ChunkLayout.BYTES": (chunks.Content.BYTES,),
    "wire.ChunkLayout.HEADER_LENGTH": (chunks.FIXED_BYTES,),
    "wire.ChunkLayout.CRC_OFFSET": (chunks.CRC_BEGIN,),
    "wire.ChunkLayout.CRC_END": (chunks.CRC_END,),
    "wire.ChunkLayout.NOT_CONTINUED": (chunks.NOT_CONTINUED,),
    "wire.ChunkLayout.FIRST_OF_GROUP": (chunks.FIRST,),
    "wire.ChunkLayout.LAST_OF_GROUP": (chunks.LAST,),
}


def java_constant(path: str) -> int:
    """Return an int constant of the Java helper, of any visibility."""
    name, _, field = f"io.aeronspark.{path}".rpartition(".")
    declared = jclass("java.lang.Class").forName(name).getDeclaredField(field)
    declared.setAccessible(True)
    return int(declared.getInt(None))


@pytest.mark.parametrize("path", SHARED)
def test_java_and_python_agree(path: str) -> None:
    assert {java_constant(path)} == set(SHARED[path])
