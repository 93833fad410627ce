"""The log of an Aeron Cluster: one recording in the archive of a member or of a ClusterBackup node.

An archive can be ahead of the cluster's consensus, and a member takes such entries back after an election. Therefore a
member's recording is readable up to the commit position, which the member has as a counter of its media driver. A
ClusterBackup copies committed entries only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from aeron_spark.aeron.counters import commit_positions, has_cluster_backup
from aeron_spark.aeron.recording import Recording
from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.errors import OptionError
from aeron_spark.log.api import Boundary, DirectStream, PublishTimes, Range, RecordingState, StreamContent
from aeron_spark.transport.channel import ChannelUri, without_start
from aeron_spark.wire.values import Rows

# The beginnings of the aliases of the log's channels: those of a member, and that on which a ClusterBackup gets it.
LOG_ALIASES: Final = ("log", "backup")
UNCOMMITTED: Final = "set clusterUncommitted=true to read also entries that the cluster may take back"


def is_cluster_log(recording: Recording) -> bool:
    """Whether a recording of the log's stream id is the log."""
    channel = ChannelUri.parse(without_start(recording.original_channel), foreign=True)
    return (channel.get("alias") or "").startswith(LOG_ALIASES)


class ClusterLog:
    """The log of a cluster in the archive of ``log``, whose recordings :func:`is_cluster_log` chooses.

    ``uncommitted``: whether to read up to the recorded end, instead of the commit position.
    """

    def __init__(self, log: ArchiveLog, *, uncommitted: bool) -> None:
        self._log = log
        self._uncommitted = uncommitted

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterLog) and (self._log, self._uncommitted) == (other._log, other._uncommitted)

    def __hash__(self) -> int:
        return hash((self._log, self._uncommitted))

    @property
    def framed(self) -> bool:
        """Whether the log counts groups of chunks instead of single messages."""
        return self._log.framed

    @property
    def archives(self) -> tuple[str, ...]:
        """The name of the archive."""
        return self._log.archives

    @property
    def stream(self) -> DirectStream:
        """The stream, as offsets identify it."""
        return self._log.stream

    def counting(self, *, framed: bool) -> ClusterLog:
        """Return the same log, counting groups or single messages."""
        return ClusterLog(self._log.counting(framed=framed), uncommitted=self._uncommitted)

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        """Do nothing: the members record the log."""

    def check_recorded(self, states: list[RecordingState]) -> None:
        """Do nothing: :meth:`states` has refused an archive without the log."""

    def states(self) -> list[RecordingState]:
        """Return the log's recording, with the commit position.

        Raises OptionError if the archive has no such recording or several, or if the commit position is unknown.
        """
        committed = None if self._uncommitted else self._commit_position()
        found = self._log.states()
        if len(found) != 1:
            raise _not_one(self._log.archives[0], found)
        return [replace(found[0], committed=committed)]

    def state(self, key: str) -> RecordingState:
        """Return the log's recording. Raises DataLossError if it does not exist."""
        return self._log.state(key)

    def content(self, states: list[RecordingState]) -> StreamContent | None:
        """Return the content of the first message, or None without messages."""
        return self._log.content(states)

    def position_at(self, state: RecordingState, time_ns: int, times: PublishTimes | None) -> int:
        """Return the position of the first message published at or after a time."""
        return self._log.position_at(state, time_ns, times)

    def lags_s(self, positions: Mapping[str, int]) -> None:
        """Return None: an archive stores positions, but no times."""

    def recorded_bytes(self, key: str, position: int, length: int) -> bytes | None:
        """Return bytes of one term of the recording, or None if they cannot be read as files."""
        return self._log.recorded_bytes(key, position, length)

    def boundary(self, key: str, start: int, limit: int, end: int, max_rows: int | None) -> Boundary:
        """Return a boundary of the recording; see :class:`aeron_spark.log.api.Boundaries`."""
        return self._log.boundary(key, start, limit, end, max_rows)

    def read(self, wanted: Range) -> Iterator[Rows]:
        """Yield the messages of a range, as :meth:`ArchiveLog.read` does."""
        return self._log.read(wanted)

    def _commit_position(self) -> int | None:
        """Return the commit position of the member on this machine's driver, or None for a ClusterBackup."""
        (address,) = self._log.address.archives
        if not address.local:
            raise OptionError(
                f"the commit position of the cluster is unknown: the archive {address.name} is not of the media driver "
                f"in {address.aeron_dir}",
                remedy="On the machine of a member or a ClusterBackup, set 'aeronDir' to its media driver and leave "
                f"'archive' out; or {UNCOMMITTED}.",
            )
        found = commit_positions(address.aeron_dir)
        if len(found) > 1:
            raise OptionError(
                f"the media driver in {address.aeron_dir} has members of several clusters "
                f"({', '.join(map(str, sorted(found)))}), and which of them has the log is unknown",
                remedy=f"Read the log of a ClusterBackup with its own media driver; or {UNCOMMITTED}.",
            )
        if found:
            return next(iter(found.values()))
        if has_cluster_backup(address.aeron_dir):
            return None
        raise OptionError(
            f"the commit position of the cluster is unknown: no member and no ClusterBackup uses the media driver in "
            f"{address.aeron_dir}",
            remedy=f"Start the member, or set 'aeronDir' to the media driver of one that runs; or {UNCOMMITTED}.",
        )


def _not_one(archive: str, found: list[RecordingState]) -> OptionError:
    listed = "; ".join(f"recording {one.recording_id} of {one.channel} [{one.start}, {one.end})" for one in found)
    what = f"has several recordings that may be the log of a cluster: {listed}" if found else "has no cluster's log"
    return OptionError(
        f"the archive {archive} {what}",
        remedy="Delete those that no member uses ('aeron-spark recordings delete'), or read one as any recording, with "
        "'channel' and 'streamId', but without the commit position."
        if found
        else "Set 'aeronDir' or 'archive' to those of a cluster's member or of a ClusterBackup.",
    )
