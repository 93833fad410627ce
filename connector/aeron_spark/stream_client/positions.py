"""Positions that a program keeps to continue to read: one per partition, with the epochs of the bytes before it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from aeron_spark.errors import DataLossError, OptionError
from aeron_spark.log.api import RecordingState
from aeron_spark.log.epochs import DIVERGED, Epochs, diverged_sentence
from aeron_spark.strict_json import parse_json
from aeron_spark.wire.stream_admin_rpc import MAX_PARTITIONS

VERSION: Final = 1
REPLACED: Final = "replaced"  # the reason of an error about positions of a partition that does not exist any more
KEYS: Final = frozenset({"epochs", "positions", "v"})  # of the JSON; later releases added "fingerprints"
REMEDY: Final = "Give positions as reader.positions has them, or its to_json()."


_PARTITION: Final = re.compile("[0-9]{1,10}")


class Positions(dict[int, int]):
    """The position of each partition, in bytes: the rows after it have not been delivered yet.

    ``epochs`` has the epochs of the bytes before each position; see ``log.epochs``. ``fingerprints`` distinguish the
    partitions from those of other streams. A copy made with ``dict(positions)`` has neither: keep :meth:`to_json`.
    """

    def __init__(
        self, positions: Mapping[int, int] | None = None, epochs: Mapping[int, Epochs] | None = None,
        fingerprints: Mapping[int, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(positions or {})
        self.epochs: dict[int, Epochs] = dict(epochs or {})
        self.fingerprints: dict[int, str] = dict(fingerprints or {})

    def copy(self) -> Positions:
        """Return an independent copy, with epochs and fingerprints."""
        return Positions(self, self.epochs, self.fingerprints)

    def to_json(self) -> str:
        """Return all of it as text, for :meth:`from_json` and for ``client.reader(start=...)``."""
        epochs = {str(partition): saved.to_text() for partition, saved in sorted(self.epochs.items())}
        found: dict[str, object] = {"epochs": epochs}
        if self.fingerprints:
            found["fingerprints"] = {str(partition): text for partition, text in sorted(self.fingerprints.items())}
        positions = {str(partition): self[partition] for partition in sorted(self)}
        return json.dumps(found | {"positions": positions, "v": VERSION})

    @classmethod
    def from_json(cls, text: str) -> Positions:
        """Return the positions that :meth:`to_json` wrote. Raises OptionError for any other text."""
        try:
            found = parse_json(text)
        except ValueError:
            raise OptionError(f"{text[:80]!r} is not the JSON of positions", remedy=REMEDY) from None
        return cls.of(found)

    @classmethod
    def of(cls, value: object) -> Positions:
        """Return the positions of a ``Positions``, of the parsed JSON of one, or of a plain dict without epochs.

        Raises OptionError for anything else.
        """
        if isinstance(value, Positions):
            return value.copy()
        if not isinstance(value, Mapping):
            raise OptionError(f"positions cannot be {value!r}", remedy=REMEDY)
        if "v" not in value:
            return cls(_numbers(value))
        if value["v"] != VERSION or set(value) - {"fingerprints"} != KEYS:
            raise OptionError(
                f"positions have version {value['v']!r} and the keys {', '.join(map(str, value))}; this release reads "
                f"version {VERSION}",
                remedy=REMEDY,
            )
        positions = _numbers(value["positions"])
        try:
            epochs = {partition: Epochs.parse(text) for partition, text in _by_partition(value["epochs"]).items()}
        except ValueError as error:
            raise OptionError(f"positions have a wrong epoch: {error}", remedy=REMEDY) from None
        fingerprints = _by_partition(value.get("fingerprints", {}))
        if not all(isinstance(text, str) for text in fingerprints.values()):
            raise OptionError(f"positions have wrong fingerprints: {fingerprints}", remedy=REMEDY)
        return cls(positions, epochs, fingerprints)


def set_position(positions: Positions, state: RecordingState, position: int) -> None:
    """Set the position of the partition of ``state``, with its epochs and its fingerprint.

    The epochs of ``positions`` are of the history of ``state``, or there are none.
    """
    partition, epochs = state.recording_id, state.epochs or Epochs()
    positions[partition] = position
    positions.fingerprints[partition] = state.fingerprint
    known = positions.epochs.get(partition)
    if known is None or known.newest != epochs.at(position):  # histories with this epoch have the same ones before it
        positions.epochs[partition] = epochs.before(position)


def check_epochs(positions: Positions, states: Mapping[int, RecordingState], stream: str, owner: str) -> None:
    """Raise DataLossError, reason "diverged", if the stream never had the bytes before one of the positions.

    ``owner`` names the owner of the positions in the error. The error's ``positions`` are the given ones, but for each
    partition that diverged the last position up to which the histories are known to be equal. The reason is "replaced"
    if a position is of another partition, of another stream or of a deleted one; then the error has the beginning of
    the partition. Positions without epochs, and those before the first position of the partition, are not checked here.
    """
    corrected = positions.copy()
    _refuse_replaced(positions, states, stream, owner)
    sentences = []
    for partition, position in positions.items():
        state, saved = states[partition], positions.epochs.get(partition)
        if saved is None or state.epochs is None or position < state.start:
            continue
        found = state.divergence(saved, position)
        if found is not None:
            sentences.append(diverged_sentence(stream, partition, owner, position, found, state.start))
            _move(corrected, state, max(found.at, state.start))
    if sentences:
        error = DataLossError(
            "; ".join(sentences),
            remedy="Undo the results of the rows after error.positions, then read on with start=error.positions",
            reason=DIVERGED,
        )
        error.positions = corrected
        raise error


def _refuse_replaced(positions: Positions, states: Mapping[int, RecordingState], stream: str, owner: str) -> None:
    replaced = [
        partition
        for partition in positions
        if positions.fingerprints.get(partition, states[partition].fingerprint) != states[partition].fingerprint
    ]
    if not replaced:
        return
    corrected = positions.copy()
    for partition in replaced:
        _move(corrected, states[partition], states[partition].start)
    numbers = ", ".join(map(str, replaced))
    error = DataLossError(
        f"the {owner}'s positions of partitions {numbers} do not belong to stream {stream!r}: the stream was deleted "
        "and created again, or they belong to another stream",
        remedy="Give the positions of this stream, or read it from its beginning with start=error.positions",
        reason=REPLACED,
    )
    error.positions = corrected
    raise error


def _move(positions: Positions, state: RecordingState, position: int) -> None:
    """Set the position of the partition of ``state``, whose epochs so far are of another history."""
    positions.epochs.pop(state.recording_id, None)
    set_position(positions, state, position)


def _numbers(value: object) -> dict[int, int]:
    found = _by_partition(value)
    for partition, position in found.items():
        if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < 1 << 63:
            raise OptionError(f"{position!r} is not a position of partition {partition}", remedy=REMEDY)
    return found


def _by_partition(value: object) -> dict[int, Any]:
    if not isinstance(value, Mapping):
        raise OptionError(f"positions cannot be {value!r}", remedy=REMEDY)
    if len(value) > MAX_PARTITIONS:  # of chosen numbers a dict becomes quadratic
        raise OptionError(f"positions have {len(value)} partitions, the limit is {MAX_PARTITIONS}", remedy=REMEDY)
    found: dict[int, Any] = {}
    for key, item in value.items():
        text = str(key)
        if not _PARTITION.fullmatch(text):
            raise OptionError(f"{key!r} is not the number of a partition", remedy=REMEDY)
        found[int(text)] = item
    return found
