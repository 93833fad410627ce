"""The administration of a server's streams in a program of asyncio."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from aeron_spark import client as plain

if TYPE_CHECKING:
    import pyarrow as pa

    from aeron_spark.wire.stream_admin_rpc import (
        PurgedPartition,
        StreamAlteration,
        StreamInfo,
        StreamLease,
        StreamWriterId,
    )

T = TypeVar("T")


class StreamAdministration(ABC):
    """The methods of ``Client`` without asyncio of the same names, awaited. They wait on threads of the client."""

    @abstractmethod
    def _opened(self) -> plain.Client:
        """Return the client without asyncio."""

    @abstractmethod
    async def _on_thread(self, call: Callable[[], T]) -> T:
        """Return the result of a call on a thread of the client."""

    async def streams(self) -> list[StreamInfo]:
        """Return the server's streams that this client may use, sorted by name."""
        return await self._on_thread(self._opened().streams)

    async def stream(self, name: str) -> StreamInfo:
        """Return one stream."""
        return await self._on_thread(partial(self._opened().stream, name))

    async def create_stream(
        self, name: str, partitions: int = 1, *, retention: str | int | timedelta | None = None, segment_bytes: int = 0,
        schema_policy: str = "strict", schema: pa.Schema | None = None, exist_ok: bool = False,
    ) -> StreamInfo:  # fmt: skip
        """Create a stream; see ``Client.create_stream``."""
        create = partial(
            self._opened().create_stream, name, partitions, retention=retention, segment_bytes=segment_bytes,
            schema_policy=schema_policy, schema=schema, exist_ok=exist_ok,
        )  # fmt: skip
        return await self._on_thread(create)

    async def alter_stream(
        self, name: str, *, retention: str | int | timedelta | None = None,
        schema_policy: str | None = None, dry_run: bool = False,
    ) -> StreamAlteration:  # fmt: skip
        """Change the retention or the schema policy of a stream; see ``Client.alter_stream``."""
        alter = self._opened().alter_stream
        return await self._on_thread(
            partial(alter, name, retention=retention, schema_policy=schema_policy, dry_run=dry_run)
        )

    async def rename_stream(self, name: str, new_name: str) -> StreamInfo:
        """Rename a stream; see ``Client.rename_stream``."""
        return await self._on_thread(partial(self._opened().rename_stream, name, new_name))

    async def end_stream(self, name: str) -> StreamInfo:
        """End a stream: it takes no more rows."""
        return await self._on_thread(partial(self._opened().end_stream, name))

    async def reopen_stream(self, name: str) -> StreamInfo:
        """Let an ended stream take rows again."""
        return await self._on_thread(partial(self._opened().reopen_stream, name))

    async def stream_writers(self, name: str) -> list[StreamWriterId]:
        """Return the writer ids of a stream."""
        return await self._on_thread(partial(self._opened().stream_writers, name))

    async def release_writer(self, name: str, writer_id: str) -> None:
        """Take a writer id from its key; see ``Client.release_writer``."""
        await self._on_thread(partial(self._opened().release_writer, name, writer_id))

    async def stream_leases(self, name: str) -> list[StreamLease]:
        """Return the leases of a stream's readers."""
        return await self._on_thread(partial(self._opened().stream_leases, name))

    async def release_lease(self, name: str, reader: str) -> None:
        """End the leases of a reader."""
        await self._on_thread(partial(self._opened().release_lease, name, reader))

    async def delete_stream(self, name: str) -> None:
        """Delete a stream with all its rows."""
        await self._on_thread(partial(self._opened().delete_stream, name))

    async def purge_stream(
        self, name: str, before: int | str | datetime, *, partition: int | None = None, wait: float = 0.0
    ) -> list[PurgedPartition]:
        """Make old rows unreadable and free their space; see ``Client.purge_stream``."""
        return await self._on_thread(partial(self._opened().purge_stream, name, before, partition=partition, wait=wait))
