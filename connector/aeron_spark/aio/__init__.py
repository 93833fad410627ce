"""The client for programs of asyncio: the same client and threads, whose calls a coroutine awaits.

async with aio.connect("localhost:20121") as client:
    await client.send({"hello": 1}, acknowledge=True)
    async for batch in client.reader("flights"):
        print(batch.num_rows)
"""

from __future__ import annotations

from aeron_spark.aio.client import Client, connect
from aeron_spark.aio.reader import StreamReader
from aeron_spark.aio.writer import BufferedWriter, StreamWriter
from aeron_spark.protocol.rpc_objects import Proxy

__all__ = ["BufferedWriter", "Client", "Proxy", "StreamReader", "StreamWriter", "connect"]
