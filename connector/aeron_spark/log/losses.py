"""What can be wrong with a recording a query has read before: purged, truncated, deleted or replaced."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aeron_spark.errors import DataLossError
from aeron_spark.log.api import RecordingState, split_key
from aeron_spark.log.epochs import DIVERGED, diverged_sentence
from aeron_spark.log.offsets import Offset
from aeron_spark.log.source_stream import ServerStream

_SHOWN: Final = 20  # findings spelt out in one error; the rest is counted
_GO_ON: Final = (
    "set failOnDataLoss=false to go on with what there is, or start a new query with a new checkpointLocation"
)


@dataclass(frozen=True, slots=True)
class Purged:
    """The beginning of a recording moved beyond what was to be read next."""

    key: str
    position: int
    start: int

    @property
    def sentence(self) -> str:
        """What happened, and what goes on without it."""
        return (
            f"{_named(self.key)} was purged: position {self.position} was to be read next, and it begins at "
            f"{self.start} now; {self.start - self.position} bytes of the log are gone"
        )

    @property
    def remedy(self) -> str:
        """What to do."""
        return f"Purge only what every query has read; {_GO_ON}"


@dataclass(frozen=True, slots=True)
class Truncated:
    """A recording ends before what was read of it, or was to be read."""

    key: str
    position: int
    end: int

    @property
    def sentence(self) -> str:
        """What happened, and what goes on without it."""
        return (
            f"{_named(self.key)} was truncated: the query is at position {self.position}, and it ends at {self.end} "
            "now (by truncateRecording, or by a loss of power)"
        )

    @property
    def remedy(self) -> str:
        """What to do."""
        return f"Truncate only what no query has read; {_GO_ON}"


@dataclass(frozen=True, slots=True)
class Deleted:
    """A recording that was not read to its end is no longer there."""

    key: str
    position: int
    left: bool = False  # its server is no longer among those that are read

    @property
    def sentence(self) -> str:
        """What happened, and what goes on without it."""
        if self.left:
            server, partition = split_key(self.key)
            return (
                f"server {server} is no longer in option 'server', and its partition {partition} was to be read from "
                f"position {self.position} on"
            )
        return (
            f"{_named(self.key)} was deleted: position {self.position} was to be read next, and it is no longer there"
        )

    @property
    def remedy(self) -> str:
        """What to do."""
        if self.left:
            return f"Name the server again until it is read to its end; {_GO_ON}"
        return f"Check that 'archive' and its directory are those of the checkpoint; {_GO_ON}"


@dataclass(frozen=True, slots=True)
class Replaced:
    """The recording of this id is another one than that which was read."""

    key: str
    position: int
    fingerprint: str
    found: str

    @property
    def sentence(self) -> str:
        """What happened, and what goes on without it."""
        return (
            f"{_named(self.key)} was replaced: up to position {self.position} the query read the recording with "
            f"fingerprint {self.fingerprint}, and the one of that id has {self.found} now (its start time, initial "
            "term id, term length, MTU or stream id differ)"
        )

    @property
    def remedy(self) -> str:
        """What to do."""
        return f"Check that 'archive' and its directory are those of the checkpoint; {_GO_ON}"


@dataclass(frozen=True, slots=True)
class Diverged:
    """A server's store was restored from a copy that does not have what was read of a partition."""

    key: str
    stream: str
    position: int
    at: int  # where the histories parted

    @property
    def sentence(self) -> str:
        """What happened, and what goes on without it."""
        return diverged_sentence(self.stream, split_key(self.key)[1], "query", self.position, self.at)

    @property
    def remedy(self) -> str:
        """What to do."""
        return (
            f"Restore what the query wrote to the same time, with its checkpoint; or set failOnDataLoss=false to go on "
            f"at position {self.at}"
        )


Finding = Purged | Truncated | Deleted | Replaced | Diverged


@dataclass(frozen=True, slots=True)
class CheckedRecordings:
    """Where to go on in each recording there is, and what was found to be lost on the way (to be warned of)."""

    positions: Mapping[str, int]
    findings: tuple[Finding, ...]


def compare(offset: Offset, states: Collection[RecordingState]) -> tuple[Finding, ...]:
    """Compare what was read with what there is; sorted by recording.

    A recording the offset does not know joins from its beginning, wherever that is. One that was read to its end may be
    deleted: nothing is lost by that.
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
            findings.append(Purged(state.key, position, state.start))
        elif (at := state.diverged_at(offset.epochs.get(state.key), position)) is not None:
            findings.append(Diverged(state.key, state.channel, position, at))
        elif state.end < position:
            findings.append(Truncated(state.key, position, state.end))
    return tuple(sorted(findings, key=lambda finding: split_key(finding.key)))


def deleted(key: str, position: int, offset: Offset, states: Collection[RecordingState]) -> Deleted:
    """Return the finding for a recording that is not among ``states``: it, or all of its server, is not there."""
    server = split_key(key)[0]
    left = isinstance(offset.stream, ServerStream) and all(state.archive != server for state in states)
    return Deleted(key, position, left)


def check_recordings(
    offset: Offset, states: Collection[RecordingState], *, fail_on_data_loss: bool
) -> CheckedRecordings:
    """Give the position to go on from in every recording of ``states``.

    Raises ``DataLossError`` listing everything lost, unless that is not to fail: then a purged recording goes on at the
    first position there is, a truncated one at its end, a replaced one is a new one, one that diverged at the position
    where the histories parted; no row is read twice.
    """
    findings = compare(offset, states)
    refuse(findings, fail_on_data_loss=fail_on_data_loss)
    replaced = {finding.key for finding in findings if isinstance(finding, Replaced)}
    parted = {finding.key: finding.at for finding in findings if isinstance(finding, Diverged)}
    positions: dict[str, int] = {}
    for state in states:
        before = None if state.key in replaced else parted.get(state.key, offset.position(state.key))
        positions[state.key] = state.start if before is None else min(max(before, state.start), state.end)
    return CheckedRecordings(positions, findings)


def refuse(findings: Sequence[Finding], *, fail_on_data_loss: bool) -> None:
    """Raise one ``DataLossError`` for all findings, if there are any and they are to fail."""
    if not findings or not fail_on_data_loss:
        return
    shown = "; ".join(finding.sentence for finding in findings[:_SHOWN])
    more = f"; and {len(findings) - _SHOWN} more recordings" if len(findings) > _SHOWN else ""
    remedies = dict.fromkeys(finding.remedy for finding in findings)
    reason = DIVERGED if any(isinstance(finding, Diverged) for finding in findings) else ""
    raise DataLossError(f"data was lost: {shown}{more}", remedy=". ".join(remedies), reason=reason)


def _named(key: str) -> str:
    archive, number = split_key(key)
    return f"recording {number} of archive {archive}"
