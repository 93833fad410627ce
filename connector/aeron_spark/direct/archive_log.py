"""A stream as the recordings of one or more archives: the log a trusted network reads directly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aeron_spark.aeron.archive import Archive, Recording, archive_of
from aeron_spark.aeron.boundary_walk import find_boundary
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
    """The log of the stream at ``address``. Cheap to make: sessions are opened by use, and kept by the process."""

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
        """The stream, as offsets name it."""
        return direct_stream(self.address.channel, self.address.stream_id)

    def counting(self, *, framed: bool) -> ArchiveLog:
        """Return the same log, counting groups or single messages."""
        return self if framed == self.framed else ArchiveLog(self.address, framed=framed)

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        """Have the stream recorded; asked once for each session with an archive, which forgets it when it restarts."""
        sessions = tuple(self._archive(name) for name in self._archives)
        if sessions != self._prepared:
            request_recording(self, states, record, query)
            self._prepared = sessions

    def check_recorded(self, states: list[RecordingState]) -> None:
        """Raise OptionError, naming similar streams, where the stream has no recording and none was asked for."""
        if not states and not self.recorded():
            raise no_recording(self.address.archives, self.address.channel, self.address.stream_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArchiveLog) and (self.address, self.framed) == (other.address, other.framed)

    def __hash__(self) -> int:
        return hash((self.address, self.framed))

    def states(self) -> list[RecordingState]:
        """Return every recording of the stream, with how far it reaches now: one listing for each archive."""
        self._known.clear()
        return [state for name in self._archives for state in self._listed(name)]

    def _listed(self, name: str) -> list[RecordingState]:
        archive = self._archive(name)
        try:
            return self._states_of(name, archive)
        except TransportError:
            if not archive.closed:
                raise
        # The session was lost, which shows only in its use: planning a batch is no reason to end a query for that.
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
        """Return what the newest recording with a message begins with, or None where no recording has one."""
        return content_of(self, states)

    def position_at(self, state: RecordingState, time_ns: int, times: PublishTimes | None) -> int:
        """Return where the first message published at or after a time begins, by search over the recording's terms."""
        if times is None:
            raise no_times(state)
        return position_at(self, state, time_ns, times)

    def boundary(self, key: str, start: int, limit: int, end: int, max_rows: int | None) -> Boundary:
        """Return where a range of ``key`` from ``start`` may end; see :class:`aeron_spark.log.api.Boundaries`."""
        archive, recording = self._recording(key)
        position, rows = find_boundary(
            archive, recording, framed=self.framed, start=start, limit=limit, end=end, max_rows=max_rows,
            idle_timeout=self.address.idle_timeout,
        )  # fmt: skip
        return Boundary(position, rows)

    def read(self, wanted: Range) -> Iterator[Rows]:
        """Yield the messages of ``[start, overrun)``; a reader of groups stops by itself once its last one is whole."""
        archive, recording = self._recording(wanted.key)
        if _fingerprint(recording) != wanted.fingerprint:
            raise DataLossError(
                f"recording {wanted.key} was replaced by another one since the batch was planned",
                remedy="Start a new query, or set failOnDataLoss=false to go on with what there is.",
            )
        if wanted.start < recording.start_position:
            raise DataLossError(
                f"recording {wanted.key} was purged up to position {recording.start_position} while "
                f"[{wanted.start}, {wanted.end}) was to be read",
                remedy="Set failOnDataLoss=false to go on with what there is, and purge later than the query reads.",
            )
        start, end = wanted.start, wanted.overrun if self.framed else wanted.end
        folder = archive.address.archive_dir
        if not folder and self.address.read_path == "files":
            raise SetupError(
                f"the archive of the driver in {archive.address.aeron_dir} belongs to another program, and where its "
                "files are is not known",
                remedy="Read it with readPath=replay, or auto.",
            )
        if folder and self.address.read_path != "replay":
            with SegmentSource(Path(folder), recording, start, end) as files:
                yield from drain(files, recording)
                start = files.position
        if start < end:  # the archive itself says why what is missing is missing
            timeout = self.address.idle_timeout
            with replay(archive, recording, start, end, timeout=timeout) as opened:
                yield from drain(ReplaySource(opened, timeout), recording)

    def state(self, key: str) -> RecordingState:
        """Return one recording of the stream; DataLossError where there is none of that key."""
        archive, recording = self._recording(key)
        return _state(key, recording, archive)

    def start_recording(self, query: str = "") -> None:
        """Ask the first archive to record the stream from now on, for ``query``."""
        archive = self._archive(self.address.archives[0].name)
        archive.start_recording(with_start(self.address.channel, start_now(query)), self.address.stream_id)

    def recorded(self) -> bool:
        """Whether an archive was asked to record the stream."""
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
                f"recording {recording_id} of archive {name} is gone",
                remedy="Set failOnDataLoss=false to go on with what there is.",
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
