"""Reads the log of a cluster as a query does, without Spark."""

from __future__ import annotations

from aeron_spark.log.offsets import Offset
from aeron_spark.log.query import QueryPlanner
from aeron_spark.log_factory import log_of
from aeron_spark.options import ReadOptions

HEADER_BYTES = 32  # of SBE and of the session in front of a client's message
SESSION_MESSAGE = b"\x18\x00\x01\x00\x6f\x00"  # block length, template 1, schema 111


def read_log(aeron_dir: str, **options: str) -> list[bytes]:
    """Return the messages of clients in the log, in a batch query over the archive of this driver."""
    return client_messages(_planner(aeron_dir, streaming=False, **options))


def client_messages(planner: QueryPlanner, start: Offset | None = None, end: Offset | None = None) -> list[bytes]:
    """Return the messages of clients between two offsets, or of a batch query."""
    ranges = planner.whole() if start is None or end is None else planner.between(start, end)
    values = [value for one in ranges for rows in planner.log.read(one) for value in rows.values.to_pylist()]
    return [value[HEADER_BYTES:] for value in values if value.startswith(SESSION_MESSAGE)]


def _planner(aeron_dir: str, *, streaming: bool, **options: str) -> QueryPlanner:
    given = {"cluster": "log", "aeronDir": aeron_dir, "startingOffsets": "earliest", **options}
    return QueryPlanner(ReadOptions.parse(given, streaming=streaming), log_of, framed=False)


class StreamingQuery:
    """A streaming query of the log; ``messages`` are those of clients that its micro-batches had."""

    def __init__(self, aeron_dir: str, start: Offset | None = None) -> None:
        self._planner = _planner(aeron_dir, streaming=True)
        self.offset = self._planner.initial() if start is None else start
        self.messages: list[bytes] = []

    def run(self) -> None:
        """Run micro-batches until one would be empty."""
        while (end := self._planner.latest(self.offset, limited=True)) is not self.offset:
            self.messages += client_messages(self._planner, self.offset, end)
            self.offset = end
