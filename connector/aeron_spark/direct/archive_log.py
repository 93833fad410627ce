"""The log of a stream on the direct route: its recordings in one or more archives of a trusted network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from aeron_spark.aeron.archive import Archive, archive_of
from aeron_spark.aeron.boundary_walk import find_boundary
from aeron_spark.aeron.recording import Recording
from aeron_spark.aeron.replay import replay
from aeron_spark.aeron.row_sources import ReplaySource, SegmentSource, drain
from aeron_spark.direct.archives import StreamAddress
from aeron_spark.direct.recordings import no_recording, request_recording, start_now
from aeron_spark.errors import DataLossError, SetupError, TransportError
from aeron_spark.log.api import (
    Boundary,
    PublishTimes,
    Range,
    RecordingState,
    StreamContent,
    fingerprint,
    recording_key,
    split_key,
)
from aeron_spark.log.inspection import content_of, no_times, position_at
from aeron_spark.log.source_stream import DirectStream, direct_stream
from aeron_spark.transport.channel import ChannelUri, same_stream
from aeron_spark.transport.recording_start import with_start, without_start
from aeron_spark.wire.values import Rows


class ArchiveLog:
    """The log of the stream at ``address``. Cheap to create: its first use opens sessions, which the process keeps."""

    def __init__(self, address: StreamAddress, *, framed: bool = False) -> None:
        self.address = address
        self.framed = framed
        self._channel = ChannelUri.parse(address.channel)
        self._archives = {archive.name: archive for archive in address.archives}
        self._known: dict[str, Recording] = {}
        self._prepared: tuple[Archive, ...] = ()

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
        """Start the stream's recording if necessary, once per session: a restarted archive has lost the request."""
        sessions = tuple(self._archive(name) for name in self._archives)
        if sessions != self._prepared:
            request_recording(self, states, record, query)
            self._prepared = sessions

    def check_recorded(self, states: list[RecordingState]) -> None:
        """Raise OptionError, with similar streams, if the stream has no recording and no archive records it."""
        if not states and not self.recorded():
            raise no_recording(self.address.archives, self.address.channel, self.address.stream_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArchiveLog) and (self.address, self.framed) == (other.address, other.framed)

    def __hash__(self) -> int:
        return hash((self.address, self.framed))

    def states(self) -> list[RecordingState]:
        """Return the recordings of the stream with their current ends, by one list request to each archive."""
        self._known.clear()
        return [state for name in self._archives for state in self._listed(name)]

    def _listed(self, name: str) -> list[RecordingState]:
        archive = self._archive(name)
        try:
            return self._states_of(name, archive)
        except TransportError:
            if not archive.closed:
                raise
        # The session was lost, which only its use shows. Retry with a new session, so that the query does not fail.
        return self._states_of(name, self._archive(name))

    def _states_of(self, name: str, archive: Archive) -> list[RecordingState]:
        found = []
        for recording in archive.recordings(self.address.stream_id):
            if same_stream(self._channel, ChannelUri.parse(recording.channel, foreign=True)):
                key = recording_key(name, recording.id)
                self._known[key] = recording
                found.append(_state(key, recording, archive))
        return found

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
        archive, recording = self._recording(key)
        position, rows = find_boundary(
            archive, recording, framed=self.framed, start=start, limit=limit, end=end, max_rows=max_rows,
            idle_timeout=self.address.idle_timeout,
        )  # fmt: skip
        return Boundary(position, rows)

    def read(self, wanted: Range) -> Iterator[Rows]:
        """Yield the messages of ``[start, overrun)``; a reader of groups stops when its last group is complete."""
        archive, recording = self._recording(wanted.key)
        if _fingerprint(recording) != wanted.fingerprint:
            raise DataLossError(
                f"recording {wanted.key} was replaced by another one since the batch was planned",
                remedy="Start a new query, or set failOnDataLoss=false to continue with the available data.",
            )
        if wanted.start < recording.start_position:
            raise DataLossError(
                f"recording {wanted.key} was purged up to position {recording.start_position}, requested range "
                f"[{wanted.start}, {wanted.end})",
                remedy="Set failOnDataLoss=false to continue with the available data, and purge only data that the "
                "query has read.",
            )
        start, end = wanted.start, wanted.overrun if self.framed else wanted.end
        folder = archive.address.archive_dir
        if not folder and self.address.read_path == "files":
            raise SetupError(
                f"the archive of the driver in {archive.address.aeron_dir} belongs to another program, so the folder "
                "of its files is unknown",
                remedy="Read it with readPath=replay or auto.",
            )
        if folder and self.address.read_path != "replay":
            with SegmentSource(Path(folder), recording, start, end) as files:
                yield from drain(files, recording)
                start = files.position
        if start < end:  # a segment file is missing: the archive's replay has the rest, or reports the cause
            timeout = self.address.idle_timeout
            with replay(archive, recording, start, end, timeout=timeout) as opened:
                yield from drain(ReplaySource(opened, timeout), recording)

    def state(self, key: str) -> RecordingState:
        """Return one recording of the stream. Raises DataLossError if it does not exist."""
        archive, recording = self._recording(key)
        return _state(key, recording, archive)

    def start_recording(self, query: str = "") -> None:
        """Start the recording of the stream in the first archive, for ``query``."""
        archive = self._archive(self.address.archives[0].name)
        archive.start_recording(with_start(self.address.channel, start_now(query)), self.address.stream_id)

    def recorded(self) -> bool:
        """Whether an archive records the stream, with or without a publisher."""
        return any(
            same_stream(self._channel, ChannelUri.parse(channel, foreign=True))
            for name in self._archives
            for channel in self._archive(name).recorded_channels(self.address.stream_id)
        )

    def _archive(self, name: str) -> Archive:
        return archive_of(self._archives[name])

    def _recording(self, key: str) -> tuple[Archive, Recording]:
        name, recording_id = split_key(key)
        archive = self._archive(name)
        recording = self._known.get(key) or archive.recording(recording_id)
        if recording is None:
            raise DataLossError(
                f"recording {recording_id} of archive {name} does not exist any more",
                remedy="Set failOnDataLoss=false to continue with the available data.",
            )
        return archive, recording


def _fingerprint(recording: Recording) -> str:
    return fingerprint(
        initial_term_id=recording.initial_term_id,
        stream_id=recording.stream_id,
        term_length=recording.term_length,
        mtu=recording.mtu,
        start_timestamp=recording.start_timestamp,
    )


def _state(key: str, recording: Recording, archive: Archive) -> RecordingState:
    active = recording.stop_position is None
    return RecordingState(
        key=key,
        fingerprint=_fingerprint(recording),
        start=recording.start_position,
        end=archive.position(recording.id) if recording.stop_position is None else recording.stop_position,
        active=active,
        term_length=recording.term_length,
        initial_term_id=recording.initial_term_id,
        mtu=recording.mtu,
        stream_id=recording.stream_id,
        session_id=recording.session_id,
        channel=without_start(recording.original_channel),
        source_identity=recording.source,
        start_timestamp=recording.start_timestamp,
    )
