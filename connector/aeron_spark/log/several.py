"""The log of several streams, as one query reads them.

The stream is one more part of a recording's key: ``<archive>/<stream>/<id>``, where the log of the stream alone has
``<archive>/<id>``. So the planner, offsets and tasks treat several streams like several archives of one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.log.api import (
    Boundary,
    Log,
    PublishTimes,
    Range,
    RecordingState,
    StreamContent,
    StreamSet,
    recording_key,
    split_key,
    stream_set,
)
from aeron_spark.wire.values import Rows

ONE_SCHEMA: Final = "Read them in separate queries, or name only streams with the same payload and columns."


class SeveralLog:
    """The log of the streams that ``names`` returns, which ``open_log`` opens. See :class:`aeron_spark.log.api.Log`.

    ``names`` may return further streams later. It is not called for a read, whose range names its stream. Logs with
    equal ``identity`` are of the same streams.
    """

    def __init__(
        self,
        names: Callable[[], Sequence[str]],
        open_log: Callable[[str], Log],
        *,
        framed: bool,
        identity: Hashable,
    ) -> None:
        self.framed = framed
        self._names = names
        self._open_log = open_log
        self._identity = identity
        self._logs: dict[str, Log] = {}  # by name, those that were used

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SeveralLog) and (self.framed, self._identity) == (other.framed, other._identity)

    def __hash__(self) -> int:
        return hash((self.framed, self._identity))

    @property
    def archives(self) -> tuple[str, ...]:
        """The archives' names in keys, with the stream."""
        return tuple(f"{archive}/{name}" for name in self._names() for archive in self._log(name).archives)

    @property
    def stream(self) -> StreamSet:
        """The streams that exist now, as offsets identify them."""
        found = [self._log(name).stream for name in self._names()]
        return stream_set(stream for stream in found if not isinstance(stream, StreamSet))

    def counting(self, *, framed: bool) -> SeveralLog:
        """Return the same log, counting groups or single messages."""
        if framed == self.framed:
            return self
        return SeveralLog(
            self._names,
            lambda name: self._log(name).counting(framed=framed),
            framed=framed,
            identity=self._identity,
        )

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        """Start the recording of each stream if the option ``record`` requires it."""
        for name, own in self._by_stream(states).items():
            self._log(name).prepare(own, record=record, query=query)

    def check_recorded(self, states: list[RecordingState]) -> None:
        """Raise OptionError if there is no stream, or one that no archive records."""
        by_stream = self._by_stream(states)
        if not by_stream:
            raise OptionError(
                "no stream of the server matches the option 'stream'",
                remedy="Give a name or pattern of a stream that the key may read; 'aeron-spark streams list' has them.",
            )
        for name, own in by_stream.items():
            self._log(name).check_recorded(own)

    def states(self) -> list[RecordingState]:
        """Return the recordings of all streams with their current ends."""
        return [
            replace(state, key=_with_stream(state.key, name))
            for name in self._names()
            for state in self._log(name).states()
        ]

    def state(self, key: str) -> RecordingState:
        """Return one recording. Raises DataLossError if it does not exist."""
        log, own = self._of(key)
        return replace(log.state(own), key=key)

    def content(self, states: list[RecordingState]) -> StreamContent | None:
        """Return the content of the streams, or None if nothing is recorded yet.

        Raises DataFormatError if they do not have one payload and one schema.
        """
        first: tuple[str, StreamContent] | None = None
        for name, own in self._by_stream(states).items():
            log = self._log(name)
            found = log.content(own)
            if found is None:
                continue
            if first is None:
                first = log.stream.label, found
            elif _columns(first[1]) != _columns(found):
                raise DataFormatError(
                    f"{first[0]} has {_described(first[1])}, and {log.stream.label} has {_described(found)}; one query "
                    "has one payload and one schema",
                    remedy=ONE_SCHEMA,
                )
        return None if first is None else first[1]

    def position_at(self, state: RecordingState, time_ns: int, times: PublishTimes | None) -> int:
        """Return the start of the first message at or after a time."""
        log, own = self._of(state.key)
        return log.position_at(replace(state, key=own), time_ns, times)

    def lags_s(self, positions: Mapping[str, int]) -> dict[str, float] | None:
        """Return how long ago the first row at or after each position was committed, in seconds, by recording."""
        by_stream: dict[str, dict[str, int]] = {}
        for key, position in positions.items():
            name, own = _split(key)
            by_stream.setdefault(name, {})[own] = position
        found: dict[str, float] = {}
        for name, of_stream in by_stream.items():
            lags = self._log(name).lags_s(of_stream)
            if lags is None:
                return None
            found |= {_with_stream(key, name): lag for key, lag in lags.items()}
        return found

    def boundary(self, key: str, start: int, limit: int, end: int, max_rows: int | None) -> Boundary:
        """Return the last boundary up to ``limit`` with at most ``max_rows`` rows since ``start``."""
        log, own = self._of(key)
        return log.boundary(own, start, limit, end, max_rows)

    def recorded_bytes(self, key: str, position: int, length: int) -> bytes | None:
        """Return bytes of one term of a recording; None if they cannot be read as files of this machine."""
        log, own = self._of(key)
        return log.recorded_bytes(own, position, length)

    def read(self, wanted: Range) -> Iterator[Rows]:
        """Yield the messages of ``[start, end)``; from a framed log those up to ``overrun``."""
        log, own = self._of(wanted.key)
        yield from log.read(replace(wanted, key=own))

    def _log(self, name: str) -> Log:
        if name not in self._logs:
            self._logs[name] = self._open_log(name)
        return self._logs[name]

    def _of(self, key: str) -> tuple[Log, str]:
        name, own = _split(key)
        return self._log(name), own

    def _by_stream(self, states: list[RecordingState]) -> dict[str, list[RecordingState]]:
        """Return the states by stream, with the keys of its log; also of streams without a recording."""
        found: dict[str, list[RecordingState]] = {name: [] for name in self._names()}
        for state in states:
            name, own = _split(state.key)
            found.setdefault(name, []).append(replace(state, key=own))
        return found


def stream_of_key(key: str) -> str:
    """Return the stream in the key of a recording of several streams."""
    return split_key(key)[0].rpartition("/")[2]


def _split(key: str) -> tuple[str, str]:
    """Split a key into the stream and the key of its own log."""
    archive, number = split_key(key)
    archive, _, name = archive.rpartition("/")
    return name, recording_key(archive, number)


def _with_stream(key: str, name: str) -> str:
    archive, number = split_key(key)
    return recording_key(f"{archive}/{name}", number)


def _columns(content: StreamContent) -> tuple[str, list[tuple[str, pa.DataType]] | None]:
    """Return what the streams of one query have in common: whether a column may be NULL is not part of it."""
    schema = content.schema
    return content.payload, None if schema is None else [(field.name, field.type) for field in schema]


def _described(content: StreamContent) -> str:
    if content.schema is None:
        return f"{content.payload} rows"
    return f"{content.payload} rows with the columns {', '.join(f'{one.name} {one.type}' for one in content.schema)}"
