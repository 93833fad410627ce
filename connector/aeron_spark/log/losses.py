"""Describes data loss in recordings, and detects it: purged, truncated, deleted, replaced or diverged ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aeron_spark.errors import DataLossError
from aeron_spark.log.api import RecordingState, ServerStream, split_key
from aeron_spark.log.epochs import DIVERGED, Divergence, diverged_sentence
from aeron_spark.log.offsets import Offset
from aeron_spark.log.overlaps import Overlaps

_MAX_FINDINGS: Final = 20  # described in one error; further ones are counted
_NONE: Final[Mapping[str, Rewritten]] = {}
_CONTINUE: Final = (
    "set failOnDataLoss=false to continue with the available data, or start a new query with a new checkpointLocation"
)


@dataclass(frozen=True, slots=True)
class StartPurged:
    """The start of a recording is after the query's next position."""

    key: str
    position: int
    start: int

    @property
    def sentence(self) -> str:
        """The loss, for an error or a warning."""
        return (
            f"{_named(self.key)} was purged: the query's next position is {self.position}, but the recording begins at "
            f"{self.start} now; {self.start - self.position} bytes of the log are gone"
        )

    @property
    def remedy(self) -> str:
        """The remedy for the user."""
        return f"Purge only segments that all queries have read; {_CONTINUE}"


@dataclass(frozen=True, slots=True)
class Truncated:
    """The end of a recording is before the query's position."""

    key: str
    position: int
    end: int

    @property
    def sentence(self) -> str:
        """The loss, for an error or a warning."""
        return (
            f"{_named(self.key)} was truncated: the query is at position {self.position}, but the recording ends at "
            f"{self.end} now (by truncateRecording, or by a loss of power)"
        )

    @property
    def remedy(self) -> str:
        """The remedy for the user."""
        return f"Truncate only data that no query has read; {_CONTINUE}"


@dataclass(frozen=True, slots=True)
class Damaged:
    """A recording has no complete frame at a position before its end."""

    key: str
    position: int
    end: int

    @property
    def sentence(self) -> str:
        """The loss, for an error or a warning."""
        return f"{_named(self.key)} is damaged at position {self.position}, the recording ends at {self.end}"

    @property
    def remedy(self) -> str:
        """The remedy for the user."""
        return (
            "Restore the archive's files from a copy, or set failOnDataLoss=false to continue at the next term, or at "
            "the end of the micro-batch before it"
        )


@dataclass(frozen=True, slots=True)
class Deleted:
    """A recording does not exist any more, and the query has not read it to its end."""

    key: str
    position: int
    server_removed: bool = False  # option 'server' does not name its server any more

    @property
    def sentence(self) -> str:
        """The loss, for an error or a warning."""
        if self.server_removed:
            server, partition = split_key(self.key)
            return (
                f"server {server} is no longer in option 'server', but the query has read its partition {partition} "
                f"only up to position {self.position}"
            )
        return (
            f"{_named(self.key)} was deleted: the query's next position is {self.position}, but the recording does not "
            "exist any more"
        )

    @property
    def remedy(self) -> str:
        """The remedy for the user."""
        if self.server_removed:
            return f"Name the server again until the query has read it to its end; {_CONTINUE}"
        return f"Check that 'archive' and its directory are those of the checkpoint; {_CONTINUE}"


@dataclass(frozen=True, slots=True)
class Replaced:
    """The recording with this id is not the one that the query has read."""

    key: str
    position: int
    fingerprint: str
    found: str

    @property
    def sentence(self) -> str:
        """The loss, for an error or a warning."""
        return (
            f"{_named(self.key)} was replaced: up to position {self.position} the query read the recording with "
            f"fingerprint {self.fingerprint}, but the recording with that id has fingerprint {self.found} now (its "
            "start time, initial term id, term length, MTU or stream id differ)"
        )

    @property
    def remedy(self) -> str:
        """The remedy for the user."""
        return f"Check that 'archive' and its directory are those of the checkpoint; {_CONTINUE}"


@dataclass(frozen=True, slots=True)
class Diverged:
    """A server's store was restored from a copy without data that the query has read."""

    key: str
    stream: str
    position: int
    divergence: Divergence
    start: int

    @property
    def at(self) -> int:
        """The position at which the query can continue."""
        return max(self.divergence.at, self.start)

    @property
    def sentence(self) -> str:
        """The loss, for an error or a warning."""
        partition = split_key(self.key)[1]
        return diverged_sentence(self.stream, partition, "query", self.position, self.divergence, self.start)

    @property
    def remedy(self) -> str:
        """The remedy for the user."""
        return (
            "Restore the query's output and checkpoint to the same time, or set failOnDataLoss=false to continue at "
            f"position {self.at}"
        )


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A recording was truncated before the query's position, and extended; the query can continue ``at`` a position."""

    key: str
    position: int
    at: int

    @property
    def sentence(self) -> str:
        """The loss, for an error or a warning."""
        return (
            f"{_named(self.key)} was replaced from a position before {self.position}, up to which the query has read "
            "or planned: it has other messages there now (it was truncated by truncateRecording, or by a loss of "
            "power, and then extended)"
        )

    @property
    def remedy(self) -> str:
        """The remedy for the user."""
        return f"Truncate only data that no query has read; {_CONTINUE}"


Finding = StartPurged | Truncated | Damaged | Deleted | Replaced | Diverged | Rewritten


class DataLossWarning(UserWarning):
    """With ``failOnDataLoss=false``: a wanted range is gone."""


@dataclass(frozen=True, slots=True)
class CheckedRecordings:
    """The position at which to continue in each recording, and the accepted losses, of which the query warns."""

    positions: Mapping[str, int]
    findings: tuple[Finding, ...]


def compare(
    offset: Offset,
    states: Collection[RecordingState],
    *,
    rewritten: Mapping[str, Rewritten] = _NONE,
    overlaps: Overlaps | None = None,
) -> tuple[Finding, ...]:
    """Compare an offset with the recordings and return the losses, sorted by recording.

    A recording that is not in the offset joins at its start. A recording that was read to its end may be deleted
    without a loss, and messages that another recording has may be purged. ``rewritten`` has the recordings whose bytes
    before the offset's position differ.
    """
    by_key = {state.key: state for state in states}
    findings: list[Finding] = [
        deleted(key, position, offset, states) for key, position in offset.recordings.items() if key not in by_key
    ]
    for state in by_key.values():
        position, known = offset.position(state.key), offset.fingerprint(state.key)
        if position is None or known is None:
            continue
        if known != state.fingerprint:
            findings.append(Replaced(state.key, position, known, state.fingerprint))
        elif state.start > position:
            if overlaps is None or not overlaps.have(state, position):
                findings.append(StartPurged(state.key, position, state.start))
        elif state.key in rewritten:
            findings.append(rewritten[state.key])
        elif (found := state.divergence(offset.epochs.get(state.key), position)) is not None:
            findings.append(Diverged(state.key, state.channel, position, found, state.start))
        elif state.end < position:
            findings.append(Truncated(state.key, position, state.end))
    return tuple(sorted(findings, key=lambda finding: split_key(finding.key)))


def deleted(key: str, position: int, offset: Offset, states: Collection[RecordingState]) -> Deleted:
    """Return the finding for a recording that is not in ``states``: it was deleted, or its server was removed."""
    server = split_key(key)[0]
    server_removed = isinstance(offset.stream, ServerStream) and all(state.archive != server for state in states)
    return Deleted(key, position, server_removed)


def check_recordings(
    offset: Offset,
    states: Collection[RecordingState],
    *,
    fail_on_data_loss: bool,
    rewritten: Mapping[str, Rewritten] = _NONE,
    overlaps: Overlaps | None = None,
) -> CheckedRecordings:
    """Return the position at which to continue in each recording of ``states``.

    Raises DataLossError with all losses if ``fail_on_data_loss``. Otherwise a purged recording continues at its start,
    a truncated one at its end, a diverged one where the histories are still equal, a rewritten one at the first message
    after its position, and a replaced one is a new recording. See ``compare`` for ``rewritten`` and ``overlaps``. No
    row is read twice, unless the exact end of a diverged one's common history is unknown.
    """
    findings = compare(offset, states, rewritten=rewritten, overlaps=overlaps)
    refuse(findings, fail_on_data_loss=fail_on_data_loss)
    replaced = {finding.key for finding in findings if isinstance(finding, Replaced)}
    diverged = {finding.key: finding.at for finding in findings if isinstance(finding, (Diverged, Rewritten))}
    positions: dict[str, int] = {}
    for state in states:
        position = None if state.key in replaced else diverged.get(state.key, offset.position(state.key))
        positions[state.key] = state.start if position is None else min(max(position, state.start), state.end)
    return CheckedRecordings(positions, findings)


def refuse(findings: Sequence[Finding], *, fail_on_data_loss: bool) -> None:
    """Raise one DataLossError for all findings, if there are any and ``fail_on_data_loss``."""
    if not findings or not fail_on_data_loss:
        return
    shown = "; ".join(finding.sentence for finding in findings[:_MAX_FINDINGS])
    more = f"; and {len(findings) - _MAX_FINDINGS} more recordings" if len(findings) > _MAX_FINDINGS else ""
    remedies = dict.fromkeys(finding.remedy for finding in findings)
    reason = DIVERGED if any(isinstance(finding, Diverged) for finding in findings) else ""
    raise DataLossError(f"data was lost: {shown}{more}", remedy=". ".join(remedies), reason=reason)


def _named(key: str) -> str:
    archive, number = split_key(key)
    return f"recording {number} of archive {archive}"
