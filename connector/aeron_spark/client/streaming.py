"""What a client does with its server's named streams: list and make them, write and read them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, overload

from aeron_spark.client.program import ClientProgram
from aeron_spark.errors import AeronSparkError, OptionError, RefusedError
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.wire.stream_rpc import DescribeStream

if TYPE_CHECKING:
    import pyarrow as pa

    from aeron_spark.stream_client.admin import StreamInfo
    from aeron_spark.stream_client.buffered_writer import BufferedWriter
    from aeron_spark.stream_client.reader import StartOrEnd, StreamReader
    from aeron_spark.stream_client.writer import StreamWriter

ANSWER_SECONDS: Final = 20.0  # for one question, an outage included
GLANCE: Final = 5.0  # seconds for a look at a server that need not be there


class StreamingClient(ClientProgram):
    """The streams' part of the client. Every method raises what the server says: OptionError for a stream that is not
    there (with the nearest name), RefusedError for what this client's key may not do.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._streams_lock = threading.Lock()
        self._streams: StreamSession | None = None
        self._buffered: weakref.WeakSet[BufferedWriter] = weakref.WeakSet()

    def streams(self) -> list[StreamInfo]:
        """Return the server's streams that this client may use, by name: what they hold, their positions and state."""
        from aeron_spark.stream_client.admin import list_streams

        return list_streams(self._stream_session())

    def stream(self, name: str) -> StreamInfo:
        """Return one of them; of one that is damaged, ``state`` and ``problem``."""
        from aeron_spark.stream_client.admin import inspect_stream

        return inspect_stream(self._stream_session(), name)

    def create_stream(
        self, name: str, partitions: int = 1, *, retention: str | int | timedelta | None = None, term_bytes: int = 0
    ) -> StreamInfo:
        """Create a stream. ``retention``: bytes of a partition (``"10GiB"``), a time (``"7d"``), or both.

        Without it everything is kept. ``term_bytes``, a power of two, is eight times the longest ``raw`` value; 0 is
        the server's choice, 16 MiB. Raises OptionError where there is one of that name.
        """
        from aeron_spark.stream_client.admin import create_stream, parse_retention

        return create_stream(self._stream_session(), name, partitions, parse_retention(retention), term_bytes)

    def delete_stream(self, name: str) -> None:
        """Delete a stream with all its rows."""
        from aeron_spark.stream_client.admin import delete_stream

        delete_stream(self._stream_session(), name)

    def purge_stream(self, name: str, before: int | str | datetime, *, partition: int | None = None) -> list[int]:
        """Delete what lies before a position, or was committed before a time (``"-7d"``, ISO), in whole segments.

        Of one partition or of all. What a reader's lease holds stays. Returns where each partition begins then.
        """
        from aeron_spark.stream_client.admin import purge_stream

        return purge_stream(self._stream_session(), name, before, partition=partition)

    @overload
    def writer(
        self, stream: str, *, writer_id: str | None = None, partition: int | None = None, payload: str = "auto",
        buffer: None = None, timeout: float = 60.0,
    ) -> StreamWriter: ...  # fmt: skip

    @overload
    def writer(
        self, stream: str, *, writer_id: str | None = None, partition: int | None = None, payload: str = "auto",
        buffer: str | Path, buffer_bytes: int = 1 << 30, keep_sent: float | str = 0.0, timeout: float = 60.0,
    ) -> BufferedWriter: ...  # fmt: skip

    def writer(
        self, stream: str, *, writer_id: str | None = None, partition: int | None = None, payload: str = "auto",
        buffer: str | Path | None = None, buffer_bytes: int = 1 << 30, keep_sent: float | str = 0.0,
        timeout: float = 60.0,
    ) -> StreamWriter | BufferedWriter:  # fmt: skip
        """Return a writer of transactions: a ``with`` block is one, or what lies between two calls of ``commit``.

        Each becomes visible as a whole, exactly once. Its rows go to ``partition``, or all to one partition, the next
        transaction's to the next one. ``payload`` ``auto``: batches and tables are ``arrow`` rows; bytes are ``raw``
        messages where the stream holds such, else ``framed`` values, which have any size. With a ``writer_id`` the
        numbers of its transactions go on from the server's last, and an earlier writer of that id is fenced off.

        With ``buffer``, a folder, transactions go there first, ``buffer_bytes`` of them at most, and are sent whenever
        the server is there: ``commit`` returns once it is on this machine's disk, and what is unsent is sent by the
        next program that opens the folder. The client need not be connected (``connect(..., wait=False)``). The folder
        belongs to one stream and one writer. ``keep_sent`` (``"24h"``, or seconds) keeps what was sent for so long: if
        the server is restored from an older copy, the writer sends again what the copy lacks. Kept transactions do not
        count as ``buffer_bytes``.

        ``timeout``: seconds that a call waits for a server that is silent, or with ``buffer`` for room in the folder. A
        commit that the server says it is at work on is waited for up to ten minutes.
        """
        if buffer is None:
            from aeron_spark.stream_client.writer import StreamWriter

            return StreamWriter(
                self._stream_session(),
                stream,
                writer_id=writer_id,
                partition=partition,
                payload=payload,
                timeout=timeout,
            )
        from aeron_spark.stream_client.buffered_writer import BufferedWriter

        self._look_at(stream)
        made = BufferedWriter(
            self, self._stream_session(), stream, buffer, writer_id=writer_id, partition=partition, payload=payload,
            most_bytes=buffer_bytes, timeout=timeout, keep_seconds=_seconds("keep_sent", keep_sent),
        )  # fmt: skip
        self._buffered.add(made)
        return made

    def reader(
        self, stream: str, *, start: StartOrEnd = "earliest", end: StartOrEnd | None = None, follow: bool = False,
        partitions: Sequence[int] | None = None, schema: pa.Schema | None = None, metadata: bool = False,
        timeout: float | None = None,
    ) -> StreamReader:  # fmt: skip
        """Return an iterator over the stream's record batches; see :class:`StreamReader`.

        ``start`` and ``end``: ``earliest``, ``latest``, a time (``"-10min"``, ISO, a datetime; UTC without a zone), or
        positions by partition, such as another reader's. Without ``follow`` it ends at what is committed now; with it,
        it goes on through outages of the server, and ends after ``timeout`` seconds without a row, where that is given.
        """
        from aeron_spark.stream_client.reader import StreamReader

        return StreamReader(
            self._stream_session(), stream, start=start, end=end, follow=follow, partitions=partitions, schema=schema,
            metadata=metadata, timeout=timeout,
        )  # fmt: skip

    def close(self) -> None:
        """End, as any client does; buffered writers first, which send what they can in a few seconds."""
        for one in list(self._buffered):
            one.close()
        super().close()
        if self._streams is not None:
            self._streams.close()

    def _stream_session(self) -> StreamSession:
        with self._streams_lock:
            if self._streams is None:
                self._streams = StreamSession(self, ANSWER_SECONDS)
            return self._streams

    def _look_at(self, stream: str) -> None:
        """Raise at once, where the server is there, for a stream that is not."""
        if not self.connected:
            return
        try:
            self._stream_session().call(DescribeStream(stream), timeout=GLANCE)
        except (OptionError, RefusedError):
            raise
        except AeronSparkError:
            return


def _seconds(name: str, given: float | str) -> float:
    """Return a keyword's duration in seconds, 0 or more. Raises OptionError for anything else."""
    from aeron_spark.options.values import NANOS, parse_duration_or_zero_ns

    try:
        return parse_duration_or_zero_ns(str(given)) / NANOS
    except ValueError:
        raise OptionError(
            f"{name} must be a duration of 0 or more, not {given!r}", remedy=f"Such as {name}='24h', or seconds."
        ) from None
