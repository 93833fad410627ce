"""``aeron-spark server`` with points at which a test can kill it, or close its client's connection.

    python -m tests.e2e.faulty_server FOLDER server ADDRESS [OPTION...]

A file ``<point>.<stream>`` in FOLDER arms a point for that stream; the server removes the file when it reaches the
point. If the file has a number, the server then waits until so many commits of the stream run. This module replaces
methods of the product in this process; the product does not contain the points.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from aeron_spark.cli.main import main
from aeron_spark.endpoint.peer_calls import Deferred
from aeron_spark.server.stream_operations import OperationService
from aeron_spark.streams.journal import Journal, encode_entry
from aeron_spark.streams.model import WriteRights
from aeron_spark.streams.recordings import Recordings
from aeron_spark.streams.stages import CommittableRows
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import wait_for
from aeron_spark.wire.stream_requests import Committed, CommitTransaction, Request, Response

STAGED: Final = "staged"  # all rows are staged, and the commit has not begun
UNPUBLISHED: Final = "unpublished"  # other commits wait for this one, and no row of it is published
PARTLY_PUBLISHED: Final = "partly-published"  # the rows of its first partition are recorded
PUBLISHED: Final = "published"  # the rows are recorded, and the journal does not have the commit
JOURNAL: Final = "journal"  # half of the journal's record of the commit is written
JOURNALLED: Final = "journalled"  # the record is on the disk, and other commits still wait
RESPONDED: Final = "responded"  # the commit is done, and its response was not sent
DROPPED: Final = "dropped"  # as before, but only the client's connection ends
FATAL: Final = (STAGED, UNPUBLISHED, PARTLY_PUBLISHED, PUBLISHED, JOURNAL, JOURNALLED, RESPONDED)
TIMEOUT_S: Final = 60.0


class Faults:
    """The armed points: files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._commits: Counter[str] = Counter()  # that run, by stream

    @contextmanager
    def counting_commit(self, stream: str) -> Iterator[None]:
        """Count a commit of the stream during the ``with`` block."""
        with self._lock:
            self._commits[stream] += 1
        try:
            yield
        finally:
            with self._lock:
                self._commits[stream] -= 1

    def hit(self, point: str, stream: str) -> bool:
        """Disarm the point for the stream, and wait for the commits of which it has the number.

        Returns whether it was armed.
        """
        armed = self.folder / f"{point}.{stream}"
        try:
            commits = int(armed.read_text() or 0)
            armed.unlink()
        except FileNotFoundError:
            return False
        wait_for(lambda: self._commits[stream] >= commits, TIMEOUT_S, f"{commits} commits of stream {stream}")
        print(f"fault: {point} of stream {stream}", file=sys.stderr, flush=True)
        return True

    def die(self, point: str, stream: str) -> None:
        """Kill this process with SIGKILL if the point is armed."""
        if self.hit(point, stream):
            os.kill(os.getpid(), signal.SIGKILL)


def inject(faults: Faults) -> None:
    """Replace the methods of the product that have points."""
    stream_commit, append, execute = Stream.commit, Journal.append, OperationService.execute
    publish, committing = Recordings.publish, threading.local()

    def commit(self: Stream, request: CommitTransaction, *rights: WriteRights) -> Committed:
        committing.stream = self.definition.name
        faults.die(STAGED, self.definition.name)
        return stream_commit(self, request, *rights)

    def publish_rows(
        self: Recordings, stages: Mapping[int, Sequence[CommittableRows]], ends: Sequence[int]
    ) -> dict[int, int]:
        faults.die(UNPUBLISHED, committing.stream)
        if faults.hit(PARTLY_PUBLISHED, committing.stream):
            publish(self, dict(list(stages.items())[:1]), ends)
            os.kill(os.getpid(), signal.SIGKILL)
        return publish(self, stages, ends)

    def append_record(self: Journal, payload: bytes) -> None:
        name = self.path.parent.name
        if b"committed" in payload:
            faults.die(PUBLISHED, name)
            if faults.hit(JOURNAL, name):
                entry = encode_entry(payload)
                os.pwrite(self._descriptor, entry[: len(entry) // 2], self._size)
                os.kill(os.getpid(), signal.SIGKILL)
        append(self, payload)
        if b"committed" in payload:
            faults.die(JOURNALLED, name)

    def execute_and_fail(self: OperationService, request: Request[Any]) -> Response | Deferred:
        if not isinstance(request, CommitTransaction):
            return execute(self, request)
        # Counted here: a commit with inline rows waits for the one that publishes before it reaches Stream.commit.
        with faults.counting_commit(request.stream):
            response = execute(self, request)
            faults.die(RESPONDED, request.stream)
            if faults.hit(DROPPED, request.stream):
                self.connection.close(keep_session=False)
                wait_for(lambda: self.connection.closed, TIMEOUT_S, "the connection to end")
        return response

    Stream.commit = commit
    Recordings.publish = publish_rows
    Journal.append = append_record
    OperationService.execute = execute_and_fail


if __name__ == "__main__":
    inject(Faults(Path(sys.argv[1])))
    sys.argv = ["aeron-spark", *sys.argv[2:]]
    main()
