"""Reads a planned range, of which a part may be gone by now: purged, truncated, deleted, replaced or damaged."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

from aeron_spark.aeron.boundary import after_damage
from aeron_spark.aeron.recording import UnreadableBytesError
from aeron_spark.errors import DataLossError
from aeron_spark.log.api import Log, Range, RecordingState
from aeron_spark.log.epochs import DIVERGED
from aeron_spark.log.losses import (
    Damaged,
    DataLossWarning,
    Deleted,
    Finding,
    Replaced,
    Rewritten,
    StartPurged,
    Truncated,
    refuse,
)
from aeron_spark.log.offsets import is_rewritten
from aeron_spark.wire.values import Rows

Find = Callable[[], RecordingState | None]  # returns the recording now, or None if it does not exist
Read = Callable[[RecordingState, int, int], Iterator[Rows]]  # reads the range between two positions


def read_available(
    wanted: Range, end: int, known: RecordingState | None, find: Find, read: Read, *, fail_on_data_loss: bool
) -> Iterator[Rows]:
    """Yield the rows of ``[wanted.start, end)``, and warn of each part that is gone; no row comes twice.

    ``known`` is the recording at an earlier time, if it was found. ``read`` raises UnreadableBytesError where it cannot
    continue. If the archive still lists the bytes there, they are damaged; reading continues at the next term. Raises
    DataLossError for a loss if ``fail_on_data_loss``.
    """
    at, state, is_resumed = wanted.start, known, False
    if _loss(wanted, at, end, state) is not None:
        state = find()
    while True:
        loss = _loss(wanted, at, end, state)
        if loss is not None:
            _accept(loss, fail_on_data_loss=fail_on_data_loss)
        if state is None or isinstance(loss, Replaced):
            return
        at, end = max(at, state.start), min(end, state.end)
        if at >= end:
            return
        try:
            for rows in read(state, at, end):
                yield replace(rows, resumed_at=at) if is_resumed else rows
                is_resumed = False
            return
        except UnreadableBytesError as error:
            at, cause, is_resumed = error.position, error.cause, True
        state = find()
        if _loss(wanted, at, end, state) is not None:
            continue
        if cause is None:
            # Without a loss, the recording exists and has the range.
            recorded_end = end if state is None else state.end
            _accept(Damaged(wanted.key, at, recorded_end), fail_on_data_loss=fail_on_data_loss)
        elif fail_on_data_loss or not _is_loss(cause):
            raise cause
        else:
            warnings.warn(cause.what, DataLossWarning, stacklevel=3)
        at = after_damage(at, wanted.term_length, end)


def state_for(log: Log, wanted: Range, *, fail_on_data_loss: bool) -> RecordingState | None:
    """Return the recording of a range, or None, with a warning, if it was deleted or rewritten since it was planned.

    Raises DataLossError instead if ``fail_on_data_loss``.
    """
    try:
        state = log.state(wanted.key)
        if is_rewritten(log, state, wanted.overrun, wanted.mark):
            refuse([Rewritten(wanted.key, wanted.overrun, wanted.overrun)], fail_on_data_loss=True)
        return state
    except DataLossError as error:
        if fail_on_data_loss:
            raise
        warnings.warn(error.what, DataLossWarning, stacklevel=3)
        return None


def _loss(wanted: Range, at: int, end: int, state: RecordingState | None) -> Finding | None:
    if state is None:
        return Deleted(wanted.key, at)
    if state.fingerprint != wanted.fingerprint:
        return Replaced(wanted.key, at, wanted.fingerprint, state.fingerprint)
    if state.start > at:
        return StartPurged(wanted.key, at, state.start)
    if state.end < end:
        return Truncated(wanted.key, end, state.end)
    return None


def _is_loss(cause: Exception) -> bool:
    return isinstance(cause, DataLossError) and cause.reason != DIVERGED


def _accept(loss: Finding, *, fail_on_data_loss: bool) -> None:
    refuse([loss], fail_on_data_loss=fail_on_data_loss)
    warnings.warn(loss.sentence, DataLossWarning, stacklevel=4)
