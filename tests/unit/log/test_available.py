"""A range of which a part is gone is read without this part: with one warning, and no row twice; or it fails."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from aeron_spark.aeron.recording import UnreadableBytesError
from aeron_spark.errors import AeronSparkError, DataLossError, TransportError
from aeron_spark.log.api import Range, RecordingState
from aeron_spark.log.available import read_available
from aeron_spark.log.epochs import DIVERGED
from aeron_spark.log.losses import DataLossWarning
from aeron_spark.wire.values import Rows

TERM = 65_536
END = 3 * TERM
WANTED = Range("embedded/7", "0a0b0c0d", 0, END, END, TERM)
WHOLE = RecordingState("embedded/7", "0a0b0c0d", 0, END, True, TERM)
STEP = 8_192  # bytes of a row


class Archive:
    """A recording that changes to ``now`` when the reading meets ``hole``."""

    def __init__(
        self, now: RecordingState | None, holes: Sequence[int] = (), cause: AeronSparkError | None = None
    ) -> None:
        self._now = now
        self._holes = holes
        self._cause = cause

    def read(self, state: RecordingState, start: int, end: int) -> Iterator[Rows]:
        for position in range(start, end, STEP):
            if position in self._holes:
                raise UnreadableBytesError(position, self._cause)
            yield rows(position)

    def positions(self, known: RecordingState | None = WHOLE, *, fail_on_data_loss: bool = False) -> list[int]:
        found = read_available(WANTED, END, known, lambda: self._now, self.read, fail_on_data_loss=fail_on_data_loss)
        return [position for one in found for position in one.positions.to_pylist()]


def rows(position: int) -> Rows:
    return Rows(pa.array([b""], pa.binary()), pa.array([position]), pa.array([0]))


def between(start: int, end: int) -> list[int]:
    return list(range(start, end, STEP))


HOLE = 5 * STEP  # in the first term

LOSSES: list[tuple[str, RecordingState | None, str, list[int]]] = [
    ("purged", replace(WHOLE, start=TERM), "was purged: .* begins at 65536 now", between(0, HOLE) + between(TERM, END)),
    ("truncated", replace(WHOLE, end=HOLE), "was truncated: .* ends at 40960 now", between(0, HOLE)),
    ("deleted", None, "was deleted", between(0, HOLE)),
    ("replaced", replace(WHOLE, fingerprint="ffffffff"), "was replaced", between(0, HOLE)),
    (
        "damaged",
        WHOLE,
        f"is damaged at position {HOLE}, the recording ends at {END}",
        between(0, HOLE) + between(TERM, END),
    ),
]


@pytest.mark.parametrize(("name", "now", "text", "positions"), LOSSES, ids=[one[0] for one in LOSSES])
def test_reading_continues_after_a_loss_with_one_warning_or_fails(
    name: str, now: RecordingState | None, text: str, positions: list[int]
) -> None:
    archive = Archive(now, [HOLE])
    with pytest.warns(DataLossWarning, match=text) as warned:
        assert archive.positions() == positions
    assert len(warned) == 1
    with pytest.raises(DataLossError, match=text):
        archive.positions(fail_on_data_loss=True)


@pytest.mark.parametrize(("name", "now", "text", "positions"), LOSSES[:4], ids=[one[0] for one in LOSSES[:4]])
def test_a_loss_before_the_first_row_is_found_without_reading(
    name: str, now: RecordingState | None, text: str, positions: list[int]
) -> None:
    archive = Archive(now)
    with pytest.warns(DataLossWarning, match=text):
        found = archive.positions(None)
    start, end = (0, 0) if now is None or now.fingerprint != WHOLE.fingerprint else (now.start, now.end)
    assert found == between(start, end)


def test_each_damaged_part_is_passed_over_to_the_next_term() -> None:
    with pytest.warns(DataLossWarning) as warned:
        assert Archive(WHOLE, [0, TERM + STEP, 2 * TERM]).positions() == [TERM]
    assert len(warned) == 3


def test_an_older_state_of_the_recording_is_not_a_loss() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Archive(WHOLE).positions(replace(WHOLE, end=TERM)) == between(0, END)


@pytest.mark.parametrize("cause", [TransportError("the driver ended"), DataLossError("it diverged", reason=DIVERGED)])
def test_bytes_that_cannot_be_read_for_another_cause_are_not_passed_over(cause: AeronSparkError) -> None:
    with pytest.raises(type(cause), match=cause.what):
        Archive(WHOLE, [HOLE], cause).positions()


def test_the_first_rows_after_a_loss_name_where_reading_continued() -> None:
    archive = Archive(WHOLE, [HOLE])
    with pytest.warns(DataLossWarning):
        found = list(read_available(WANTED, END, WHOLE, lambda: WHOLE, archive.read, fail_on_data_loss=False))
    assert [(one.positions[0].as_py(), one.resumed_at) for one in found if one.resumed_at is not None] == [(TERM, TERM)]
