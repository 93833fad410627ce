"""``Offset``: how far a query has read, the *next* position of every recording, as canonical JSON.

    {"done": "<finished recordings, packed>", "epochs": {"<server>/<partition>": "<16 hex>"},
     "fingerprints": {"<archive>/<id>": "<8 hex>"}, "initial": true, "joined": {"<archive>/<id>": <position>},
     "origin": {"<archive>/<id>": <position>},
     "recordings": {"<archive>/<id>": <next position>}, "stream": {"channel": "<uri>", "id": <stream id>},
     "turn": "<archive>/<id>", "v": 1}

Rules:

* Spark compares offsets as JSON text: equal offsets give the same text (names in order, nothing optional written when
  empty), and where nothing moved the start itself is returned.
* Spark does not save a query's first offset: if batch 0 fails, a restart asks for the initial offset again and gets
  a later one, and what lies between would be lost. So ``initial`` marks an initial offset, the end of the first
  batch carries its positions as ``origin``, and ``begin`` plans that batch from them.
* A recording that joins in a batch stands in ``joined`` of its end, with the position it began at: repeated later, the
  batch begins there again, and a purge that came between is noticed.
* A recording that stopped and was read to its end moves into ``done`` (see ``compaction``), and back when extended.
* ``epochs`` has, through a server, the epoch of the byte before each position (see ``epochs``), so that a store that
  was restored from an older copy is noticed. A checkpoint without it is accepted once: the end of its next batch has
  it, and where nothing moved that is one batch without rows. A batch whose start diverged begins where they parted.
* ``stream`` names the stream (see ``source_stream``), so that a checkpoint is not used for another one. A checkpoint
  that was written without it is accepted once: the end of its next batch names the stream. Where nothing moved, that is
  one batch without rows, which keeps everything else that its start says; the batch after it finds its text unchanged.
* ``turn`` names the recording that was served first, where a limit left others without any (see ``planning``).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

from aeron_spark.errors import DataFormatError
from aeron_spark.log.api import FRAME_ALIGNMENT, RecordingState, recording_key, split_key
from aeron_spark.log.epochs import epoch_text, parse_epoch
from aeron_spark.log.source_stream import SourceStream, joined_stream, parse_stream

VERSION: Final = 1

_NAMES: Final = frozenset(
    {"done", "epochs", "fingerprints", "initial", "joined", "origin", "recordings", "stream", "turn", "v"}
)

_FINGERPRINT: Final = re.compile(r"[0-9a-f]{8}", re.ASCII)

_NEW_CHECKPOINT: Final = "Use the checkpoint of this query, or a new checkpointLocation"


@dataclass(frozen=True, slots=True)
class Offset:
    """Next positions of the recordings in ``recordings``, and of the finished ones in ``done``."""

    recordings: Mapping[str, int]
    fingerprints: Mapping[str, str]  # of the same recordings
    done: Mapping[str, Finished] = field(default_factory=dict)
    origin: Mapping[str, int] | None = None
    initial: bool = False
    joined: Mapping[str, int] = field(default_factory=dict)
    turn: str | None = None
    stream: SourceStream | None = None  # None: written before offsets named their stream
    epochs: Mapping[str, int] = field(default_factory=dict)  # of partitions of a server

    @classmethod
    def first(
        cls, positions: Mapping[str, int], states: Collection[RecordingState], stream: SourceStream | None = None
    ) -> Offset:
        """Make the initial offset of a new query; ``positions`` has every recording of ``states``."""
        prints = {state.key: state.fingerprint for state in states}
        epochs = _epochs_at(positions, states)
        return cls(dict(positions), {key: prints[key] for key in positions}, initial=True, stream=stream, epochs=epochs)

    @classmethod
    def parse(cls, value: object) -> Offset:
        """Parse what ``to_dict`` gave, after a way through JSON.

        Raises ``DataFormatError`` saying what is wrong: another version, another source's offset, or garbage.
        """
        if not isinstance(value, Mapping) or "v" not in value:
            raise _foreign(value)
        version = value["v"]
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise _garbled(f"its version is {_short(version)}")
        if version > VERSION:
            raise DataFormatError(
                f"the checkpoint has an offset of version {version}, and this aeron-spark knows up to {VERSION}",
                remedy="Run the query with the newer aeron-spark that wrote it, or use a new checkpointLocation",
            )
        unknown = sorted(str(name) for name in value if name not in _NAMES)
        if unknown:
            raise _garbled(f"it has the unknown part {_short(unknown[0])}")
        return cls._parsed(value)

    @classmethod
    def _parsed(cls, value: Mapping[str, object]) -> Offset:
        recordings = _positions("recordings", value.get("recordings"))
        fingerprints = _fingerprints(value.get("fingerprints"))
        if recordings.keys() != fingerprints.keys():
            raise _garbled("its recordings and its fingerprints are not of the same recordings")
        done = _done(value.get("done"))
        twice = sorted(recordings.keys() & done.keys())
        if twice:
            raise _garbled(f"it has recording {twice[0]} twice")
        turn, initial = value.get("turn"), value.get("initial", False)
        if not isinstance(initial, bool):
            raise _garbled("'initial' is neither true nor false")
        if turn is not None and not isinstance(turn, str):
            raise _garbled("'turn' is no recording")
        origin = _positions("origin", value["origin"]) if "origin" in value else None
        joined = _positions("joined", value.get("joined", {}))
        for key in (*(origin or ()), *joined):
            if key not in recordings and key not in done:
                raise _garbled(f"it says where recording {key} began, and not where it goes on")
        epochs = _epochs(value.get("epochs", {}))
        for key in epochs:
            if key not in recordings and key not in done:
                raise _garbled(f"it has an epoch of recording {key}, and not where it goes on")
        stream = _stream(value.get("stream"))
        return cls(recordings, fingerprints, done, origin, initial, joined, turn, stream, epochs)

    def to_dict(self) -> dict[str, object]:
        """Give plain values in canonical order: ``json.dumps`` of equal offsets is the same text."""
        out: dict[str, object] = {"done": pack(self.done)}
        if self.epochs:
            out["epochs"] = {key: epoch_text(epoch) for key, epoch in sorted(self.epochs.items())}
        out["fingerprints"] = _ordered(self.fingerprints)
        if self.initial:
            out["initial"] = True
        if self.joined:
            out["joined"] = _ordered(self.joined)
        if self.origin is not None:
            out["origin"] = _ordered(self.origin)
        out["recordings"] = _ordered(self.recordings)
        if self.stream is not None:
            out["stream"] = self.stream.to_dict()
        if self.turn is not None:
            out["turn"] = self.turn
        out["v"] = VERSION
        return out

    def of_stream(self, stream: SourceStream) -> Offset:
        """Give this offset as one of ``stream``: itself where it says so already.

        Raises ``OptionError`` where it is of another stream.
        """
        joined = joined_stream(self.stream, stream)
        return self if joined is self.stream else replace(self, stream=joined)

    def __contains__(self, key: str) -> bool:
        return key in self.recordings or key in self.done

    def position(self, key: str) -> int | None:
        """Give the next position of a recording, or None where this offset does not know it."""
        if key in self.recordings:
            return self.recordings[key]
        return self.done[key].position if key in self.done else None

    def fingerprint(self, key: str) -> str | None:
        """Give the fingerprint of a recording, or None where this offset does not know it."""
        if key in self.fingerprints:
            return self.fingerprints[key]
        return self.done[key].fingerprint if key in self.done else None

    def archives(self) -> set[str]:
        """Give the archives, or servers, that have its recordings."""
        return {split_key(key)[0] for key in (*self.recordings, *self.done)}

    def positions(self) -> dict[str, int]:
        """Give the next position of every recording, finished ones too."""
        return {**self.recordings, **{key: one.position for key, one in self.done.items()}}


def finish(offset: Offset, over: Mapping[str, str]) -> Offset:
    """Give ``offset`` with the recordings in ``over`` (key to fingerprint) among the finished ones.

    For recordings that were seen to have stopped where the offset already stands: while nothing moves no offset is
    written that could say so, and a recording that is then deleted would look like data lost. Returns ``offset``
    itself where none is new.
    """
    ended = {key for key, known in over.items() if key in offset.recordings and offset.fingerprints[key] == known}
    if not ended:
        return offset
    return replace(
        offset,
        recordings={key: at for key, at in offset.recordings.items() if key not in ended},
        fingerprints={key: known for key, known in offset.fingerprints.items() if key not in ended},
        done={**offset.done, **{key: Finished(offset.recordings[key], 0, over[key]) for key in ended}},
    )


def begin(start: Offset, end: Offset) -> Offset:
    """Give the offset from which the batch up to ``end`` is read: where each recording begins in it.

    That is ``start``, but for the first batch of a query (its start was never saved, and the one asked for again is
    later) and for recordings that joined in this batch.
    """
    positions, done = dict(start.recordings), dict(start.done)
    prints = dict(start.fingerprints)
    if start.initial:
        # An end without an origin is an initial offset itself: a first batch in which there was nothing to read.
        origin = end.positions() if end.origin is None else end.origin
        positions, done, prints = dict(origin), {}, {key: end.fingerprint(key) or "" for key in origin}
    for key, position in end.joined.items():
        if not start.initial and start.fingerprint(key) == end.fingerprint(key):
            continue  # it joined before: there is nothing between these offsets
        done.pop(key, None)
        positions[key], prints[key] = position, end.fingerprint(key) or ""
    # Where a recording joins, or a first batch begins, is judged by the epoch of the batch's end alone.
    epochs = {key: at for key, at in start.epochs.items() if positions.get(key) == start.position(key)}
    return Offset(positions, prints, done, initial=start.initial, epochs={} if start.initial else epochs)


def advance(
    start: Offset,
    positions: Mapping[str, int],
    states: Collection[RecordingState],
    *,
    begins: Mapping[str, int] | None = None,
    finished: Collection[str] = (),
    turn: str | None = None,
) -> Offset:
    """Give the offset after a batch that ends at ``positions`` (one for each of ``states``).

    ``begins`` is where the batch begins in each of ``states``, where that is not where ``start`` stands: behind a loss
    that was accepted. ``finished`` are recordings in which nothing complete is left. Recordings that ``start`` knows
    and ``states`` does not (deleted ones, which cannot be read) are kept as finished, so that one that comes back is
    not read twice. Where nothing moved, ``start`` itself is returned.
    """
    by_key = {state.key: state for state in states}
    gone = [key for key in start.recordings if key not in by_key]
    if not gone and not any(_moved(start, state, positions[state.key]) for state in states):
        return start
    recordings: dict[str, int] = {}
    prints: dict[str, str] = {}
    done = {key: one for key, one in start.done.items() if key not in by_key}
    for key in gone:
        one = Finished(start.recordings[key], 0, start.fingerprints[key])
        _keep(key, one, one.packable, done, recordings, prints)
    for key, state in by_key.items():
        one = Finished(positions[key], max(0, state.end - positions[key]), state.fingerprint)
        over = start.done.get(key) == one or (not state.active and (key in finished or one.tail == 0))
        _keep(key, one, over and one.packable, done, recordings, prints)
    same = {key for key in by_key if start.fingerprint(key) == by_key[key].fingerprint}
    joined = {key: state.start for key, state in by_key.items() if key not in same and positions[key] > state.start}
    origin = None
    if start.initial:
        # What was replaced in this very batch begins anew, as one that joined.
        origin = {key: at for key, at in start.positions().items() if key in same or key not in by_key}
        origin.update((key, at) for key, at in (begins or {}).items() if key in same)
    epochs = {key: epoch for key, epoch in start.epochs.items() if key not in by_key}
    epochs.update(_epochs_at(positions, states))
    return Offset(recordings, prints, done, origin, joined=joined, turn=turn, stream=start.stream, epochs=epochs)


def _moved(start: Offset, state: RecordingState, position: int) -> bool:
    before = start.position(state.key)
    if before is None:
        return position != state.start
    return (
        position != before
        or start.fingerprint(state.key) != state.fingerprint
        or start.epochs.get(state.key) != state.epoch_at(position)
    )


def _keep(
    key: str,
    one: Finished,
    over: bool,
    done: dict[str, Finished],
    recordings: dict[str, int],
    prints: dict[str, str],
) -> None:
    if over:
        done[key] = one
    else:
        recordings[key], prints[key] = one.position, one.fingerprint


def _ordered(values: Mapping[str, object]) -> dict[str, object]:
    return {key: values[key] for key in sorted(values)}


def _positions(name: str, value: object) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, position in _recordings(name, value).items():
        if isinstance(position, bool) or not isinstance(position, int) or position < 0:
            raise _garbled(f"the position {_short(position)} of {key} in '{name}' is none")
        found[key] = position
    return found


def _fingerprints(value: object) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, text in _recordings("fingerprints", value).items():
        if not isinstance(text, str) or not _FINGERPRINT.fullmatch(text):
            raise _garbled(f"the fingerprint {_short(text)} of {key} is none")
        found[key] = text
    return found


def _epochs_at(positions: Mapping[str, int], states: Collection[RecordingState]) -> dict[str, int]:
    found = {state.key: state.epoch_at(positions[state.key]) for state in states if state.key in positions}
    return {key: epoch for key, epoch in found.items() if epoch is not None}


def _epochs(value: object) -> dict[str, int]:
    try:
        return {key: parse_epoch(text) for key, text in _recordings("epochs", value).items()}
    except ValueError as error:
        raise _garbled(str(error)) from None


def _recordings(name: str, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise _garbled(f"'{name}' is not there" if value is None else f"'{name}' is {_short(value)}")
    found: dict[str, object] = {}
    for key, one in value.items():
        try:
            split_key(key)
        except (ValueError, AttributeError):
            raise _garbled(f"{_short(key)} in '{name}' is no recording, <archive>/<recording id>") from None
        found[key] = one
    return found


def _done(value: object) -> dict[str, Finished]:
    if not isinstance(value, str):
        raise _garbled("'done' is not there" if value is None else f"'done' is {_short(value)}")
    try:
        return unpack(value)
    except ValueError as error:
        raise _garbled(f"'done' is {error}") from None


def _stream(value: object) -> SourceStream | None:
    try:
        return None if value is None else parse_stream(value)
    except ValueError as error:
        raise _garbled(f"'stream' is {_short(value)}: {error}") from None


def _foreign(value: object) -> DataFormatError:
    return DataFormatError(
        f"the checkpoint has an offset that is not one of format('aeron'): {_short(value)}", remedy=_NEW_CHECKPOINT
    )


def _garbled(why: str) -> DataFormatError:
    return DataFormatError(
        f"the checkpoint has an offset of format('aeron') that is damaged: {why}", remedy=_NEW_CHECKPOINT
    )


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=repr)
    return text if len(text) <= 80 else text[:77] + "..."


_FINGERPRINT_BYTES: Final = 4

_MAX_VARINT_BITS: Final = 63


@dataclass(frozen=True, slots=True)
class Finished:
    """A recording read to ``position``, after which only an unfinished ``tail`` (usually 0 bytes) was recorded."""

    position: int
    tail: int
    fingerprint: str

    @property
    def seen(self) -> int:
        """The recorded end that is known to hold nothing more; beyond it the recording was extended."""
        return self.position + self.tail

    @property
    def packable(self) -> bool:
        """Whether packing loses nothing: Aeron's own positions are aligned, those of a test may not be."""
        return self.position % FRAME_ALIGNMENT == 0 and self.tail % FRAME_ALIGNMENT == 0


def pack(finished: Mapping[str, Finished]) -> str:
    """Pack; the same recordings give the same text. Every one of them must be ``packable``."""
    entries = sorted(((*split_key(key), one) for key, one in finished.items()), key=lambda entry: entry[:2])
    out = bytearray()
    for archive, group in groupby(entries, key=lambda entry: entry[0]):
        members = list(group)
        name = archive.encode("utf-8")
        out += _varint(len(name)) + name + _varint(len(members))
        before = 0
        for _, number, one in members:
            out += (
                _varint(number - before)
                + _varint(one.position // FRAME_ALIGNMENT)
                + _varint(one.tail // FRAME_ALIGNMENT)
            )
            out += bytes.fromhex(one.fingerprint)
            before = number
    return base64.b64encode(out).decode("ascii")


def unpack(text: str) -> dict[str, Finished]:
    """Give back what was packed, sorted as it was. Raises ``ValueError`` for anything that ``pack`` did not write."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"no base64: {error}") from None
    taken = _Taken(data)
    finished: dict[str, Finished] = {}
    while taken.left:
        archive = taken.bytes(taken.varint()).decode("utf-8")
        number = 0
        for _ in range(taken.varint()):
            number += taken.varint()
            position, tail = taken.varint() * FRAME_ALIGNMENT, taken.varint() * FRAME_ALIGNMENT
            key = recording_key(archive, number)
            finished[key] = Finished(position, tail, taken.bytes(_FINGERPRINT_BYTES).hex())
    # One text for one set of recordings: offsets are compared as text.
    if pack(finished) != text:
        raise ValueError("not in canonical form")
    return finished


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class _Taken:
    """Bytes taken one after the other, never beyond their end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def bytes(self, count: int) -> bytes:
        if count > self.left:
            raise ValueError("cut short")
        self._at += count
        return self._data[self._at - count : self._at]

    def varint(self) -> int:
        number = shift = 0
        while shift < _MAX_VARINT_BITS:
            byte = self.bytes(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
        raise ValueError("a number that is too long")
