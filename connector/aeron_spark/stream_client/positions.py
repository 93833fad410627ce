"""Positions that a program keeps and reads on from: by partition, each with the epoch of the byte before it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from aeron_spark.errors import DataLossError, OptionError
from aeron_spark.log.api import RecordingState
from aeron_spark.log.epochs import DIVERGED, FIRST, diverged_sentence, epoch_text, parse_epoch

VERSION: Final = 1
REPLACED: Final = "replaced"  # the reason of an error about positions of another partition than the one there is
PARTS: Final = frozenset({"epochs", "positions", "v"})  # of the JSON; "fingerprints" is there since later
REMEDY: Final = "Give positions as reader.positions has them, or its to_json()."


class Positions(dict[int, int]):
    """The position of each partition, in bytes: the rows behind those that were given begin there.

    ``epochs`` has the epoch of the byte before each position; see ``log.epochs``. ``fingerprints`` tell the partition
    from those of other streams. A copy made with ``dict(positions)`` has neither: keep :meth:`to_json`.
    """

    def __init__(
        self, positions: Mapping[int, int] | None = None, epochs: Mapping[int, int] | None = None,
        fingerprints: Mapping[int, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(positions or {})
        self.epochs: dict[int, int] = dict(epochs or {})
        self.fingerprints: dict[int, str] = dict(fingerprints or {})

    def copy(self) -> Positions:
        """Return the same positions, which do not change with these."""
        return Positions(self, self.epochs, self.fingerprints)

    def to_json(self) -> str:
        """Return everything as text, for :meth:`from_json` and for ``client.reader(start=...)``."""
        epochs = {str(at): epoch_text(epoch) for at, epoch in sorted(self.epochs.items())}
        found: dict[str, object] = {"epochs": epochs}
        if self.fingerprints:
            found["fingerprints"] = {str(at): one for at, one in sorted(self.fingerprints.items())}
        return json.dumps(found | {"positions": {str(at): self[at] for at in sorted(self)}, "v": VERSION})

    @classmethod
    def from_json(cls, text: str) -> Positions:
        """Return what :meth:`to_json` wrote. Raises OptionError for any other text."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise OptionError(f"{text[:80]!r} is not the JSON of positions", remedy=REMEDY) from None
        return cls.of(found)

    @classmethod
    def of(cls, value: object) -> Positions:
        """Return positions of themselves, of what ``to_json`` wrote and JSON read, or of a plain dict, without epochs.

        Raises OptionError for anything else.
        """
        if isinstance(value, Positions):
            return value.copy()
        if not isinstance(value, Mapping):
            raise OptionError(f"positions cannot be {value!r}", remedy=REMEDY)
        if "v" not in value:
            return cls(_by_partition(value))
        if value["v"] != VERSION or set(value) - {"fingerprints"} != PARTS:
            raise OptionError(
                f"these positions have the version {value['v']!r} and the parts {', '.join(map(str, value))}; this "
                f"release knows version {VERSION}",
                remedy=REMEDY,
            )
        positions = _by_partition(value["positions"])
        try:
            epochs = {at: parse_epoch(text) for at, text in _by_partition(value["epochs"]).items()}
        except ValueError as error:
            raise OptionError(f"positions have a wrong epoch: {error}", remedy=REMEDY) from None
        fingerprints = _by_partition(value.get("fingerprints", {}))
        if not all(isinstance(one, str) for one in fingerprints.values()):
            raise OptionError(f"positions have wrong fingerprints: {fingerprints}", remedy=REMEDY)
        return cls(positions, epochs, fingerprints)

    def move(self, state: RecordingState, position: int) -> None:
        """Set the position of the partition of ``state``, its epoch and its fingerprint."""
        self[state.recording_id] = position
        self.fingerprints[state.recording_id] = state.fingerprint
        epoch = state.epoch_at(position)
        self.epochs[state.recording_id] = FIRST if epoch is None else epoch


def check_epochs(kept: Positions, states: Mapping[int, RecordingState], stream: str, who: str) -> None:
    """Raise DataLossError, reason "diverged", where the stream never had what is before one of the positions.

    Its ``positions`` are ``kept``, but where the histories parted for each partition that diverged. The reason is
    "replaced" where a position is of another partition, of another stream or of one that was deleted; there the
    partition's beginning takes its place. Positions without an epoch, and those before the first position there is, are
    left to other checks.
    """
    found = kept.copy()
    _refuse_replaced(kept, states, stream, who)
    sentences = []
    for at, position in kept.items():
        state, epoch = states[at], kept.epochs.get(at)
        if epoch is None or state.epochs is None or position < state.start:
            continue
        parted = state.epochs.diverged_at(epoch, position, state.end)
        if parted is not None:
            sentences.append(diverged_sentence(stream, at, who, position, parted))
            found.move(state, max(parted, state.start))
    if sentences:
        error = DataLossError(
            "; ".join(sentences),
            remedy="Undo what was made of the rows behind these positions, then read on with start=error.positions",
            reason=DIVERGED,
        )
        error.positions = found
        raise error


def _refuse_replaced(kept: Positions, states: Mapping[int, RecordingState], stream: str, who: str) -> None:
    other = [at for at in kept if kept.fingerprints.get(at, states[at].fingerprint) != states[at].fingerprint]
    if not other:
        return
    found = kept.copy()
    for at in other:
        found.move(states[at], states[at].start)
    named = ", ".join(map(str, other))
    error = DataLossError(
        f"the {who}'s positions of partitions {named} are not of stream {stream!r} as it is now: it was deleted and "
        "created again, or they are of another stream",
        remedy="Give the positions of this stream, or read it from its beginning with start=error.positions",
        reason=REPLACED,
    )
    error.positions = found
    raise error


def _by_partition(value: object) -> dict[int, Any]:
    if not isinstance(value, Mapping):
        raise OptionError(f"positions cannot be {value!r}", remedy=REMEDY)
    found: dict[int, Any] = {}
    for key, one in value.items():
        text = str(key)
        if not (text.isascii() and text.isdecimal()):
            raise OptionError(f"{key!r} is not the number of a partition", remedy=REMEDY)
        found[int(text)] = one
    return found
