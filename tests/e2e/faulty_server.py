"""``aeron-spark server`` with points at which a test ends it, or cuts its client off: what each leaves is put right.

    python -m tests.e2e.faulty_server FOLDER ADDRESS [OPTION...]

A file ``<point>.<stream>`` in FOLDER arms a point for that stream; who gets there takes the file away. The points are
put around the product's own methods here, in this process; the product knows nothing of them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from aeron_spark.cli.main import main
from aeron_spark.server.stream_service import StreamRequestHandler
from aeron_spark.streams.journal import Journal, encode_entry
from aeron_spark.streams.model import CommitOutcome
from aeron_spark.streams.stages import StageRef
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import wait_for
from aeron_spark.wire.stream_rpc import CommitTransaction, decode_request

STAGED: Final = "staged"  # all rows are staged, and nothing of the commit is done
PUBLISHED: Final = "published"  # the rows are recorded, and nothing says that they count
JOURNAL: Final = "journal"  # half of the record that says so is written
ANSWERED: Final = "answered"  # the commit is done, and its answer on the way
DROPPED: Final = "dropped"  # as before, but only the client's connection ends
FATAL: Final = (STAGED, PUBLISHED, JOURNAL, ANSWERED)
CLOSING: Final = 60.0  # seconds


class Faults:
    """The armed points: files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hit(self, point: str, stream: str) -> bool:
        """Whether the point is armed for the stream; then it is no longer."""
        try:
            (self.folder / f"{point}.{stream}").unlink()
        except FileNotFoundError:
            return False
        print(f"fault: {point} of stream {stream}", flush=True)
        return True

    def die(self, point: str, stream: str) -> None:
        """kill -9 of this process where the point is armed."""
        if self.hit(point, stream):
            os.kill(os.getpid(), signal.SIGKILL)


def inject(faults: Faults) -> None:
    """Put the points around the methods that they are named after."""
    stream_commit, append, handle = Stream.commit, Journal.append, StreamRequestHandler.handle

    def commit(
        self: Stream, writer: str, run: str, transaction: int, stages: Iterable[StageRef], **more: Any
    ) -> CommitOutcome:
        faults.die(STAGED, self.definition.name)
        return stream_commit(self, writer, run, transaction, stages, **more)

    def journal(self: Journal, payload: bytes) -> None:
        name = self.path.parent.name
        if b"committed" in payload:
            faults.die(PUBLISHED, name)
            if faults.hit(JOURNAL, name):
                entry = encode_entry(payload)
                os.pwrite(self._descriptor, entry[: len(entry) // 2], self._size)
                os.kill(os.getpid(), signal.SIGKILL)
        append(self, payload)

    def answered(self: StreamRequestHandler, data: bytes) -> bytes:
        request, answer = decode_request(data), handle(self, data)
        if isinstance(request, CommitTransaction):
            faults.die(ANSWERED, request.stream)
            if faults.hit(DROPPED, request.stream):
                self._connection.close()
                wait_for(lambda: self._connection.closed, CLOSING, "the connection to end")
        return answer

    Stream.commit, Journal.append, StreamRequestHandler.handle = commit, journal, answered  # type: ignore[method-assign]


if __name__ == "__main__":
    inject(Faults(Path(sys.argv[1])))
    sys.argv = ["aeron-spark", "server", *sys.argv[2:]]
    main()
