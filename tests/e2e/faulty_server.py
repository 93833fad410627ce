"""``aeron-spark server`` with points at which a test can kill it, or close its client's connection.

    python -m tests.e2e.faulty_server FOLDER ADDRESS [OPTION...]

A file ``<point>.<stream>`` in FOLDER arms a point for that stream; the server removes the file when it reaches the
point. This module replaces methods of the product in this process; the product does not contain the points.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from concurrent.futures import Future
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

STAGED: Final = "staged"  # all rows are staged, and the commit has not begun
PUBLISHED: Final = "published"  # the rows are recorded, and the journal does not have the commit
JOURNAL: Final = "journal"  # half of the journal's record of the commit is written
RESPONDED: Final = "responded"  # the commit is done, and its response was not sent
DROPPED: Final = "dropped"  # as before, but only the client's connection ends
FATAL: Final = (STAGED, PUBLISHED, JOURNAL, RESPONDED)
CLOSE_TIMEOUT_S: Final = 60.0


class Faults:
    """The armed points: files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hit(self, point: str, stream: str) -> bool:
        """Disarm the point for the stream; return whether it was armed."""
        try:
            (self.folder / f"{point}.{stream}").unlink()
        except FileNotFoundError:
            return False
        print(f"fault: {point} of stream {stream}", flush=True)
        return True

    def die(self, point: str, stream: str) -> None:
        """Kill this process with SIGKILL if the point is armed."""
        if self.hit(point, stream):
            os.kill(os.getpid(), signal.SIGKILL)


def inject(faults: Faults) -> None:
    """Replace the methods of the product that have points."""
    stream_commit, append, handle = Stream.commit, Journal.append, StreamRequestHandler.handle

    def commit(
        self: Stream, writer: str, run: str, transaction: int, stages: Iterable[StageRef], **more: Any
    ) -> CommitOutcome:
        faults.die(STAGED, self.definition.name)
        return stream_commit(self, writer, run, transaction, stages, **more)

    def append_record(self: Journal, payload: bytes) -> None:
        name = self.path.parent.name
        if b"committed" in payload:
            faults.die(PUBLISHED, name)
            if faults.hit(JOURNAL, name):
                entry = encode_entry(payload)
                os.pwrite(self._descriptor, entry[: len(entry) // 2], self._size)
                os.kill(os.getpid(), signal.SIGKILL)
        append(self, payload)

    def handle_and_respond(self: StreamRequestHandler, data: bytes) -> bytes | Future[bytes]:
        request, response = decode_request(data), handle(self, data)
        if isinstance(request, CommitTransaction):
            faults.die(RESPONDED, request.stream)
            if faults.hit(DROPPED, request.stream):
                self._connection.close(keep_session=False)
                wait_for(lambda: self._connection.closed, CLOSE_TIMEOUT_S, "the connection to end")
        return response

    Stream.commit = commit  # type: ignore[method-assign]
    Journal.append = append_record  # type: ignore[method-assign]
    StreamRequestHandler.handle = handle_and_respond  # type: ignore[method-assign]


if __name__ == "__main__":
    inject(Faults(Path(sys.argv[1])))
    sys.argv = ["aeron-spark", "server", *sys.argv[2:]]
    main()
