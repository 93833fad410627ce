"""Describes the streams of a server for its operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from aeron_spark.errors import AeronSparkError
from aeron_spark.streams.store import StreamStore


@dataclass(frozen=True, slots=True)
class StreamReport:
    """One stream at one time. A client chose its ``name``: escape it before you print it.

    ``state`` is that of ``StreamStore.condition``. ``committed_bytes`` is the sum of the partitions' end positions,
    ``kept_bytes`` that of the bytes that readers can read; a damaged stream has 0 of both.
    """

    name: str
    state: str
    partitions: int
    kept_bytes: int
    committed_bytes: int


class StreamCommands:
    """The command ``streams.list``. ``opened_store`` returns the store, or None before its recovery has ended."""

    def __init__(self, opened_store: Callable[[], StreamStore | None]) -> None:
        self._opened_store: Final = opened_store

    def list_streams(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``streams``: the reports of all streams; none before the recovery has ended."""
        return {"streams": [asdict(one) for one in self.reports()]}

    def reports(self) -> list[StreamReport]:
        """Return the reports of all streams, in the order of their names."""
        store = self._opened_store()
        return [] if store is None else [report for name in store.names for report in _reports(store, name)]


def _reports(store: StreamStore, name: str) -> list[StreamReport]:
    """Return the report of a stream; none for one that was deleted meanwhile."""
    try:
        state = store.condition(name).state
        partitions = [] if name in store.failed else store.get(name).states()
    except AeronSparkError:
        return []
    return [
        StreamReport(
            name=name,
            state=state,
            partitions=len(partitions),
            kept_bytes=sum(one.end - one.start for one in partitions),
            committed_bytes=sum(one.end for one in partitions),
        )
    ]
