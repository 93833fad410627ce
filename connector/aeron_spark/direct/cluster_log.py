"""The log of an Aeron Cluster: one recording in the archive of a member or of a ClusterBackup node.

An archive can be ahead of the cluster's consensus, and a member takes such entries back after an election. Therefore a
member's recording is readable up to the commit position, which the member has as a counter of its media driver. A
ClusterBackup copies committed entries only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from aeron_spark.aeron.counters import commit_positions, has_cluster_backup
from aeron_spark.aeron.recording import Recording
from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archive_recordings import StreamAddress
from aeron_spark.errors import OptionError
from aeron_spark.log.api import RecordingState
from aeron_spark.transport.channel import ChannelUri, without_start

# The beginnings of the aliases of the log's channels: those of a member, and that on which a ClusterBackup gets it.
LOG_ALIASES: Final = ("log", "backup")
UNCOMMITTED: Final = "set clusterUncommitted=true to read also entries that the cluster may take back"


class ClusterLog(ArchiveLog):
    """The log of a cluster in an archive.

    ``uncommitted``: whether to read up to the recorded end, instead of the commit position.
    """

    def __init__(self, address: StreamAddress, *, framed: bool = False, uncommitted: bool) -> None:
        super().__init__(address, framed=framed)
        self._uncommitted = uncommitted

    @property
    def _identity(self) -> tuple[object, ...]:
        return *super()._identity, self._uncommitted

    def _includes(self, recording: Recording) -> bool:
        channel = ChannelUri.parse(without_start(recording.original_channel), foreign=True)
        return (channel.get("alias") or "").startswith(LOG_ALIASES)

    def counting(self, *, framed: bool) -> ClusterLog:
        """Return the same log, counting groups or single messages."""
        return ClusterLog(self.address, framed=framed, uncommitted=self._uncommitted)

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        """Do nothing: the members record the log."""

    def check_recorded(self, states: list[RecordingState]) -> None:
        """Do nothing: :meth:`states` has refused an archive without the log."""

    def states(self) -> list[RecordingState]:
        """Return the log's recording, with the commit position.

        Raises OptionError if the archive has no such recording or several, or if the commit position is unknown.
        """
        committed = None if self._uncommitted else self._commit_position()
        found = super().states()
        if len(found) != 1:
            raise _not_one(self.archives[0], found)
        return [replace(found[0], committed=committed)]

    def _commit_position(self) -> int | None:
        """Return the commit position of the member on this machine's driver, or None for a ClusterBackup."""
        (address,) = self.address.archives
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
