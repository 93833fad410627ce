"""The log of a stream on the direct route: its recordings in one or more archives of a trusted network."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aeron_spark.aeron.boundary import WantedBoundary
from aeron_spark.aeron.recording import ArchiveAddress, Recording, ReplaysAhead, read_recorded
from aeron_spark.direct.archive_recordings import (
    ArchiveRecordings,
    CataloguedRecording,
    FileRecordings,
    FilesFirst,
    StreamAddress,
)
from aeron_spark.errors import DataLossError
from aeron_spark.log.api import (
    Boundary,
    DirectStream,
    PublishTimes,
    Range,
    RecordingState,
    StreamContent,
    direct_stream,
    recording_key,
    split_key,
)
from aeron_spark.log.available import read_available
from aeron_spark.log.inspection import content_of, no_times, position_at
from aeron_spark.transport.channel import ChannelUri, same_stream, with_start, without_start
from aeron_spark.wire.values import Rows

if TYPE_CHECKING:
    from aeron_spark.aeron.archive import Archive


class ArchiveLog:
    """The log of the stream at ``address``. Cheap to create: its first use opens sessions, which the process keeps.

    Files of this machine's archive need no session, and so no JVM. Replays of a task may be started ``ahead``.
    """

    def __init__(self, address: StreamAddress, *, framed: bool = False, ahead: ReplaysAhead | None = None) -> None:
        self.address = address
        self._ahead = ahead
        self.framed = framed
        self._channel = ChannelUri.parse(address.channel)
        self._archives = {archive.name: archive for archive in address.archives}
        self._recordings = {one.name: _recordings_of(one, address.idle_timeout) for one in address.archives}
        self._known: dict[str, tuple[CataloguedRecording, RecordingState]] = {}  # by key, as last found
        self._prepared: tuple[Hashable, ...] = ()

    @property
    def archives(self) -> tuple[str, ...]:
        """The archives' names."""
        return tuple(self._archives)

    @property
    def stream(self) -> DirectStream:
        """The stream, as offsets identify it."""
        return direct_stream(self.address.channel, self.address.stream_id)

    def counting(self, *, framed: bool) -> ArchiveLog:
        """Return the same log, counting groups or single messages."""
        return self if framed == self.framed else ArchiveLog(self.address, framed=framed)

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        """Start the stream's recording if necessary, once per run of the archive: a restart forgets the request."""
        runs = tuple(one.run() for one in self._recordings.values())
        if runs == self._prepared:
            return
        is_left_out = record == "never" and bool(states)  # what is recorded can be read
        if not is_left_out and not any(state.active for state in states) and not self.recorded():
            from aeron_spark.direct.recordings import check_recordable, warn_of_recording

            check_recordable(self.address, record)
            self.start_recording(query)
            warn_of_recording(self.address, was_recorded=bool(states))
        self._prepared = runs

    def check_recorded(self, states: list[RecordingState]) -> None:
        """Raise OptionError, with similar streams, if the stream has no recording and no archive records it."""
        from aeron_spark.direct.recordings import no_recording

        if not states and not self.recorded():
            raise no_recording(self.address.archives, self.address.channel, self.address.stream_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArchiveLog) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[object, ...]:
        return self.address, self.framed

    def _includes(self, recording: Recording) -> bool:
        """Whether a recording with the stream's id is one of the stream."""
        return self._has_channel(recording.channel)

    def _has_channel(self, channel: str) -> bool:
        return same_stream(self._channel, ChannelUri.parse(channel, foreign=True))

    def states(self) -> list[RecordingState]:
        """Return the recordings of the stream with their current ends."""
        self._known.clear()
        states = []
        for name, recordings in self._recordings.items():
            for found in recordings.of_stream(self.address.stream_id):
                if self._includes(found.recording):
                    key = recording_key(name, found.recording.id)
                    states.append(self._remember(key, found))
        return states

    def content(self, states: list[RecordingState]) -> StreamContent | None:
        """Return the content of the first message of the newest recording with messages, or None without messages."""
        return content_of(self, states)

    def position_at(self, state: RecordingState, time_ns: int, times: PublishTimes | None) -> int:
        """Return the position of the first message published at or after a time, by a search over the terms."""
        if times is None:
            raise no_times(state)
        return position_at(self, state, time_ns, times)

    def lags_s(self, positions: Mapping[str, int]) -> None:
        """Return None: an archive stores positions, but no times."""

    def boundary(self, key: str, start: int, limit: int, end: int, max_rows: int | None) -> Boundary:
        """Return a boundary of the recording ``key``; see :class:`aeron_spark.log.api.Boundaries`."""
        wanted = WantedBoundary(start, limit, end, max_rows)
        return self._recordings[split_key(key)[0]].boundary(self._recording(key), wanted, framed=self.framed)

    def recorded_bytes(self, key: str, position: int, length: int) -> bytes | None:
        """Return bytes of one term of the recording, or None if they cannot be read as files of this machine."""
        folder = self._archives[split_key(key)[0]].archive_dir
        return read_recorded(Path(folder), self._recording(key), position, length) if folder else None

    def read(self, wanted: Range) -> Iterator[Rows]:
        """Yield the messages of ``[start, overrun)``; a reader of groups stops when its last group is complete.

        With ``fail_on_data_loss=False`` of the address, without those that are gone, of which it warns.
        """
        from aeron_spark.direct.session_recordings import read_rows

        address = self._archives[split_key(wanted.key)[0]]

        def read(_: RecordingState, start: int, end: int) -> Iterator[Rows]:
            path, idle_s = self.address.read_path, self.address.idle_timeout
            recording = self._recording(wanted.key)
            return read_rows(address, recording, start, end, read_path=path, idle_timeout=idle_s, ahead=self._ahead)

        end, known = wanted.overrun if self.framed else wanted.end, self._known.get(wanted.key)
        state, fails = None if known is None else known[1], self.address.fail_on_data_loss
        yield from read_available(wanted, end, state, lambda: self._look(wanted.key), read, fail_on_data_loss=fails)

    def state(self, key: str) -> RecordingState:
        """Return one recording, as the log has found it last. Raises DataLossError if it does not exist."""
        return self._find(key)[1]

    def start_recording(self, query: str = "") -> Callable[[], object]:
        """Start the recording of the stream in the first archive, for ``query``; return a function that ends it."""
        from aeron_spark.direct.recordings import start_now

        archive = self._session(self.address.archives[0].name)
        started = archive.start_recording(with_start(self.address.channel, start_now(query)), self.address.stream_id)
        return lambda: started is not None and archive.stop_subscription(started)

    def recorded(self) -> bool:
        """Whether an archive records the stream, with or without a publisher."""
        return any(
            self._has_channel(channel)
            for name in self._archives
            for channel in self._session(name).recorded_channels(self.address.stream_id)
        )

    def _session(self, name: str) -> Archive:
        from aeron_spark.aeron.archive import archive_of

        return archive_of(self._archives[name])

    def _recording(self, key: str) -> Recording:
        return self._find(key)[0].recording

    def _remember(self, key: str, found: CataloguedRecording) -> RecordingState:
        state = _state(key, found)
        self._known[key] = found, state
        return state

    def _look(self, key: str) -> RecordingState | None:
        """Return the recording now, or None if it does not exist."""
        name, recording_id = split_key(key)
        found = self._recordings[name].find(recording_id)
        return None if found is None else self._remember(key, found)

    def _find(self, key: str) -> tuple[CataloguedRecording, RecordingState]:
        """Return the recording, as the log has found it last. Raises DataLossError if it does not exist."""
        if key not in self._known and self._look(key) is None:
            name, recording_id = split_key(key)
            raise DataLossError(
                f"recording {recording_id} of archive {name} does not exist any more",
                remedy="Set failOnDataLoss=false to continue with the available data.",
            )
        return self._known[key]


def _recordings_of(address: ArchiveAddress, idle_timeout: float) -> ArchiveRecordings:
    def open_session() -> ArchiveRecordings:
        from aeron_spark.direct.session_recordings import SessionRecordings

        return SessionRecordings(address, idle_timeout)

    return FilesFirst(FileRecordings(address), open_session)


def _state(key: str, found: CataloguedRecording) -> RecordingState:
    recording = found.recording
    return RecordingState(
        key=key,
        fingerprint=recording.fingerprint,
        start=recording.start_position,
        end=found.end,
        active=found.active,
        term_length=recording.term_length,
        initial_term_id=recording.initial_term_id,
        mtu=recording.mtu,
        stream_id=recording.stream_id,
        session_id=recording.session_id,
        channel=without_start(recording.original_channel),
        source_identity=recording.source,
        start_timestamp=recording.start_timestamp,
        stop_timestamp=recording.stop_timestamp,
    )
