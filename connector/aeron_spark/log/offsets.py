"""The offsets of a query: JSON with the position of each recording, and marks of the bytes before it. Pure.

A mark shows that a recording was truncated and extended. After an extension beyond the query's position, neither the
recording's end nor the catalog shows the truncation: the bytes before the position do. A mark is of at least the last
frame. It is the same if another publication wrote equal messages: the files of an archive with checksums have no Aeron
session ids. Bytes that were purged, or are not in files of this machine, cannot be compared. Pure, given the bytes.

An offset:

    {"begins": {"<archive>/<id>": <position>},
     "done": "<finished recordings, packed>", "epochs": {"<server>/<partition>": "<Epochs.to_text>"},
     "fingerprints": {"<archive>/<id>": "<8 hex>"}, "initial": true, "joined": {"<archive>/<id>": <position>},
     "marks": "<checksums, packed>", "origin": {"<archive>/<id>": <position>}, "payload": "<raw, framed or arrow>",
     "recordings": {"<archive>/<id>": <next position>}, "stream": {"channel": "<uri>", "id": <stream id>},
     "turn": "<archive>/<id>", "v": 1}

Rules:

* Spark compares offsets as JSON text. Equal offsets have the same text (sorted names, no empty optional values), and
  without progress the start itself is returned.
* Spark does not save a query's first offset. If batch 0 fails, a restart requests the initial offset again and gets a
  later one; the data in between would be lost. Therefore ``initial`` marks an initial offset, the end of the first
  batch has its positions as ``origin``, and ``begin`` plans that batch from them.
* A recording that joins in a batch is in ``joined`` of the batch's end, with its first position. A repeated batch
  begins there again, and detects a purge in between.
* ``begins`` has the positions at which the batch begins in recordings that the batch's start has at another position:
  another recording had the messages in between (see ``overlaps``), or the recording was rewritten.
* ``marks`` has a checksum of the bytes before positions to detect a recording that was truncated and
  extended. Checkpoints of earlier releases, and archives whose files are not on this machine, have none.
* ``payload`` is the stream's, as ``payload=auto`` found it with the first message. Checkpoints of other queries, and of
  earlier releases, have none: the end of the next batch with rows has it.
* A recording that stopped and was read to its end moves to ``done``, and back when it is extended.
* ``epochs`` has, through a server, the epochs of the bytes before each position (see ``epochs``), to detect a store
  that was restored from another copy. A checkpoint without epochs is accepted once: the end of its next batch has them,
  and without progress that is one batch without rows. A checkpoint with only the newest epoch gets the others with its
  next rows. A batch whose start has diverged begins where the two histories are still equal.
* ``stream`` identifies the stream (see ``source_stream``), so that a checkpoint is not used for another stream. A
  checkpoint without it is accepted once: the end of its next batch has the stream. Without progress, that is one batch
  without rows, with all other values of its start; the text of the batch after it is unchanged.
* ``turn`` is the recording that was served first, if a limit left other recordings without rows (see ``planning``).
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final, TypeVar

from aeron_spark.errors import DataFormatError
from aeron_spark.log.api import (
    Mark,
    RecordedBytes,
    RecordingState,
    SourceStream,
    joined_stream,
    parse_stream,
    recording_key,
    split_key,
)
from aeron_spark.log.epochs import Epochs
from aeron_spark.texts import check_json
from aeron_spark.transport.channel import FRAME_ALIGNMENT

Value = TypeVar("Value")
_MAX_VARINT_BITS: Final = 63
_MAX_NAME_BYTES: Final = 1_024  # of an archive, which is in the key of each of its recordings
_MAX_NUMBER: Final = (1 << 63) - 1  # of a position, and of a recording's id
_CHECKSUM_BYTES: Final = 4
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def mark_before(log: RecordedBytes, state: RecordingState, position: int) -> Mark | None:
    """Return the mark of a position; None if the recording has no bytes before it, or its bytes cannot be read."""
    begin = max(state.start, position - state.mtu, _term_before(state, position))
    length = position - begin
    if length <= 0 or length % FRAME_ALIGNMENT:
        return None
    data = log.recorded_bytes(state.key, begin, length)
    return None if data is None else Mark(length, zlib.crc32(data))


def is_rewritten(log: RecordedBytes, state: RecordingState, position: int, mark: Mark | None) -> bool:
    """Whether the recording has other bytes before ``position`` than when the mark was made, as far as is known."""
    if mark is None or position - mark.length < state.start or position > state.end:
        return False
    data = log.recorded_bytes(state.key, position - mark.length, mark.length)
    return data is not None and zlib.crc32(data) != mark.checksum


def _term_before(state: RecordingState, position: int) -> int:
    """Return the begin of the term with the byte before ``position``."""
    return (position - 1) // state.term_length * state.term_length


def pack_marks(marks: Mapping[str, Mark]) -> str:
    """Return marks by recording as a text; equal marks have the same text."""
    return _pack_values(marks, _encode_mark)


def unpack_marks(text: str) -> dict[str, Mark]:
    """Return the marks of a text of ``pack_marks``. Raises ValueError for other texts."""
    return _unpack_values(text, _decode_mark, _encode_mark)


def _encode_mark(mark: Mark) -> bytes:
    return varint(mark.length // FRAME_ALIGNMENT) + mark.checksum.to_bytes(_CHECKSUM_BYTES, "big")


def _decode_mark(reader: _ByteReader) -> Mark:
    return Mark(reader.length(), int.from_bytes(reader.bytes(_CHECKSUM_BYTES), "big"))


VERSION: Final = 1

_NAMES: Final = frozenset(
    (
        *("begins", "done", "epochs", "fingerprints", "initial", "joined", "marks", "origin", "payload", "recordings"),
        *("stream", "turn", "v"),
    )
)

_PAYLOADS: Final = ("raw", "framed", "arrow")

_FINGERPRINT: Final = re.compile(r"[0-9a-f]{8}", re.ASCII)

_NEW_CHECKPOINT: Final = "Use the checkpoint of this query, or a new checkpointLocation"


@dataclass(frozen=True, slots=True)
class Offset:
    """The next positions of a query: in ``recordings``, and for finished recordings in ``done``."""

    recordings: Mapping[str, int]
    fingerprints: Mapping[str, str]  # of the same recordings
    done: Mapping[str, Finished] = field(default_factory=dict)
    origin: Mapping[str, int] | None = None
    initial: bool = False
    joined: Mapping[str, int] = field(default_factory=dict)
    turn: str | None = None
    stream: SourceStream | None = None  # None: written by a release without this field
    epochs: Mapping[str, Epochs] = field(default_factory=dict)  # saved state of partitions of a server
    begins: Mapping[str, int] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    payload: str | None = None

    @classmethod
    def first(
        cls, positions: Mapping[str, int], states: Collection[RecordingState], stream: SourceStream | None = None
    ) -> Offset:
        """Return the initial offset of a new query; ``positions`` has all recordings of ``states``."""
        prints = {state.key: state.fingerprint for state in states}
        epochs = _epochs_before(positions, states)
        return cls(dict(positions), {key: prints[key] for key in positions}, initial=True, stream=stream, epochs=epochs)

    @classmethod
    def parse(cls, value: object) -> Offset:
        """Parse a value of ``to_dict`` that was converted to JSON and back.

        Raises DataFormatError for another version, another source's offset, or a damaged one.
        """
        try:
            check_json(value)
        except ValueError as error:
            raise _damaged(str(error)) from None
        if not isinstance(value, Mapping) or "v" not in value:
            raise _foreign(value)
        version = value["v"]
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise _damaged(f"its version is {_short(version)}")
        if version > VERSION:
            raise DataFormatError(
                f"the checkpoint has an offset of version {version}, expected at most {VERSION}",
                remedy="Run the query with the newer aeron-spark that wrote it, or use a new checkpointLocation",
            )
        unknown = sorted(str(name) for name in value if name not in _NAMES)
        if unknown:
            raise _damaged(f"it has the unknown part {_short(unknown[0])}")
        return cls._parsed(value)

    @classmethod
    def _parsed(cls, value: Mapping[str, object]) -> Offset:
        recordings = _positions("recordings", value.get("recordings"))
        fingerprints = _fingerprints(value.get("fingerprints"))
        if recordings.keys() != fingerprints.keys():
            raise _damaged("its recordings and its fingerprints are not of the same recordings")
        done = _done(value.get("done"))
        twice = sorted(recordings.keys() & done.keys())
        if twice:
            raise _damaged(f"it has recording {twice[0]} twice")
        turn, initial = value.get("turn"), value.get("initial", False)
        if not isinstance(initial, bool):
            raise _damaged("'initial' is neither true nor false")
        if turn is not None and not isinstance(turn, str):
            raise _damaged("'turn' is not a recording")
        origin = _positions("origin", value["origin"]) if "origin" in value else None
        joined = _positions("joined", value.get("joined", {}))
        begins = _positions("begins", value.get("begins", {}))
        for key in (*(origin or ()), *joined, *begins):
            if key not in recordings and key not in done:
                raise _damaged(f"it has the first position of recording {key}, but not its next position")
        epochs = _epochs(value.get("epochs", {}))
        for key in epochs:
            if key not in recordings and key not in done:
                raise _damaged(f"it has an epoch of recording {key}, but not its next position")
        marks = _marks(value.get("marks", ""))
        for key in marks:
            if key not in recordings and key not in done:
                raise _damaged(f"it has a mark of recording {key}, but not its next position")
        payload = value.get("payload")
        if payload is not None and payload not in _PAYLOADS:
            raise _damaged(f"its payload is {_short(payload)}")
        return cls(
            recordings,
            fingerprints,
            done,
            origin,
            initial,
            joined,
            turn,
            _stream(value.get("stream")),
            epochs,
            begins,
            marks,
            payload,
        )

    def to_dict(self) -> dict[str, object]:
        """Return plain values in canonical order, so that ``json.dumps`` of equal offsets returns the same text."""
        out: dict[str, object] = {"begins": _ordered(self.begins)} if self.begins else {}
        out["done"] = pack(self.done)
        if self.epochs:
            out["epochs"] = {key: epochs.to_text() for key, epochs in sorted(self.epochs.items())}
        out["fingerprints"] = _ordered(self.fingerprints)
        if self.initial:
            out["initial"] = True
        if self.joined:
            out["joined"] = _ordered(self.joined)
        if self.marks:
            out["marks"] = pack_marks(self.marks)
        if self.origin is not None:
            out["origin"] = _ordered(self.origin)
        if self.payload is not None:
            out["payload"] = self.payload
        out["recordings"] = _ordered(self.recordings)
        if self.stream is not None:
            out["stream"] = self.stream.to_dict()
        if self.turn is not None:
            out["turn"] = self.turn
        out["v"] = VERSION
        return out

    def of_stream(self, stream: SourceStream) -> Offset:
        """Return this offset with ``stream``; itself if it has that already. Raises OptionError for another stream."""
        joined = joined_stream(self.stream, stream)
        return self if joined is self.stream else replace(self, stream=joined)

    def __contains__(self, key: str) -> bool:
        return key in self.recordings or key in self.done

    def position(self, key: str) -> int | None:
        """Return the next position of a recording, or None if the offset does not have it."""
        if key in self.recordings:
            return self.recordings[key]
        return self.done[key].position if key in self.done else None

    def fingerprint(self, key: str) -> str | None:
        """Return the fingerprint of a recording, or None if the offset does not have it."""
        if key in self.fingerprints:
            return self.fingerprints[key]
        return self.done[key].fingerprint if key in self.done else None

    def archives(self) -> set[str]:
        """Return the archives, or servers, of its recordings."""
        return {split_key(key)[0] for key in (*self.recordings, *self.done)}

    def positions(self) -> dict[str, int]:
        """Return the next positions of all recordings, also of finished ones."""
        return {**self.recordings, **{key: one.position for key, one in self.done.items()}}


def finish(offset: Offset, finished: Mapping[str, str]) -> Offset:
    """Return ``offset`` with the recordings in ``finished`` (key to fingerprint) moved to ``done``.

    For recordings that have stopped at the offset's position: without progress Spark writes no offset with this fact,
    and a later deletion of the recording would look like data loss. Returns ``offset`` itself if none is new.
    """
    ended = {key for key, known in finished.items() if key in offset.recordings and offset.fingerprints[key] == known}
    if not ended:
        return offset
    return replace(
        offset,
        recordings={key: at for key, at in offset.recordings.items() if key not in ended},
        fingerprints={key: known for key, known in offset.fingerprints.items() if key not in ended},
        done={**offset.done, **{key: Finished(offset.recordings[key], 0, finished[key]) for key in ended}},
    )


def begin(start: Offset, end: Offset) -> Offset:
    """Return the offset at which the batch up to ``end`` begins.

    That is ``start``, except for the first batch of a query (Spark did not save its start, and requests a later one)
    for recordings that joined in this batch, and for those in ``begins``.
    """
    if start == end:
        return start
    positions, done = dict(start.recordings), dict(start.done)
    prints = dict(start.fingerprints)
    if start.initial:
        # An end without an origin is an initial offset itself, of a first batch without rows.
        origin = end.positions() if end.origin is None else end.origin
        positions, done, prints = dict(origin), {}, {key: end.fingerprint(key) or "" for key in origin}
    for key, position in end.joined.items():
        if not start.initial and start.fingerprint(key) == end.fingerprint(key):
            continue  # it joined earlier, so the batch has nothing of it
        done.pop(key, None)
        positions[key], prints[key] = position, end.fingerprint(key) or ""
    for key, position in end.begins.items():
        done.pop(key, None)
        positions[key], prints[key] = position, end.fingerprint(key) or ""
    # For recordings that join, and in a first batch, only the epoch of the batch's end is checked.
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
    moved: Collection[str] = (),
) -> Offset:
    """Return the offset after a batch that ends at ``positions`` (one for each of ``states``).

    ``begins`` has the batch's first positions if they differ from ``start``: after an accepted loss, and in the
    recordings ``moved``, of which a repeated batch cannot find them again. ``finished`` are
    recordings without further complete messages. Deleted recordings, which are in ``start`` but not in ``states``,
    become finished, so that a recording that reappears is not read twice. Without progress, ``start`` is returned.
    """
    by_key = {state.key: state for state in states}
    removed = [key for key in start.recordings if key not in by_key]
    if not removed and not any(_has_changed(start, state, positions[state.key]) for state in states):
        return start
    recordings: dict[str, int] = {}
    prints: dict[str, str] = {}
    done = {key: one for key, one in start.done.items() if key not in by_key}
    for key in removed:
        one = Finished(start.recordings[key], 0, start.fingerprints[key])
        _add(key, one, one.packable, done, recordings, prints)
    for key, state in by_key.items():
        one = Finished(positions[key], max(0, state.end - positions[key]), state.fingerprint)
        is_done = start.done.get(key) == one or (not state.active and (key in finished or one.tail == 0))
        _add(key, one, is_done and one.packable, done, recordings, prints)
    same = {key for key in by_key if start.fingerprint(key) == by_key[key].fingerprint}
    first = {key: begins[key] for key in moved if begins}
    joined = {
        key: first.get(key, state.start)
        for key, state in by_key.items()
        if key not in same and positions[key] > state.start
    }
    origin = None
    if start.initial:
        # A recording that was replaced in this batch is treated as one that joined.
        origin = {key: at for key, at in start.positions().items() if key in same or key not in by_key}
        origin.update((key, at) for key, at in (begins or {}).items() if key in same)
    epochs = {key: saved for key, saved in start.epochs.items() if key not in by_key}
    epochs.update(_epochs_before(positions, states))
    return Offset(
        recordings,
        prints,
        done,
        origin,
        joined=joined,
        turn=turn,
        stream=start.stream,
        epochs=epochs,
        begins={} if start.initial else {key: at for key, at in first.items() if key in same},
        marks={key: mark for key, mark in start.marks.items() if key in same and positions[key] == start.position(key)},
        payload=start.payload,
    )


def _has_changed(start: Offset, state: RecordingState, position: int) -> bool:
    old = start.position(state.key)
    if old is None:
        return position != state.start
    saved = start.epochs.get(state.key)
    return (
        position != old
        or start.fingerprint(state.key) != state.fingerprint
        or (None if saved is None else saved.newest) != state.epoch_at(position)
    )


def _add(
    key: str,
    one: Finished,
    is_done: bool,
    done: dict[str, Finished],
    recordings: dict[str, int],
    prints: dict[str, str],
) -> None:
    if is_done:
        done[key] = one
    else:
        recordings[key], prints[key] = one.position, one.fingerprint


def _ordered(values: Mapping[str, object]) -> dict[str, object]:
    return {key: values[key] for key in sorted(values)}


def _positions(name: str, value: object) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, position in _recordings(name, value).items():
        if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position <= _MAX_NUMBER:
            raise _damaged(f"the position {_short(position)} of {key} in '{name}' is not a position")
        found[key] = position
    return found


def _fingerprints(value: object) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, text in _recordings("fingerprints", value).items():
        if not isinstance(text, str) or not _FINGERPRINT.fullmatch(text):
            raise _damaged(f"the fingerprint {_short(text)} of {key} is not eight hex digits")
        found[key] = text
    return found


def _epochs_before(positions: Mapping[str, int], states: Collection[RecordingState]) -> dict[str, Epochs]:
    found = {state.key: state.epochs_before(positions[state.key]) for state in states if state.key in positions}
    return {key: epochs for key, epochs in found.items() if epochs is not None}


def _epochs(value: object) -> dict[str, Epochs]:
    try:
        return {key: Epochs.parse(text) for key, text in _recordings("epochs", value).items()}
    except ValueError as error:
        raise _damaged(str(error)) from None


def _recordings(name: str, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise _damaged(f"'{name}' is missing" if value is None else f"'{name}' is {_short(value)}")
    found: dict[str, object] = {}
    for key, one in value.items():
        try:
            split_key(key)
        except (ValueError, AttributeError):
            raise _damaged(f"{_short(key)} in '{name}' is not a recording, <archive>/<recording id>") from None
        found[key] = one
    return found


def _done(value: object) -> dict[str, Finished]:
    if not isinstance(value, str):
        raise _damaged("'done' is missing" if value is None else f"'done' is {_short(value)}")
    try:
        return unpack(value)
    except ValueError as error:
        raise _damaged(f"'done' is {error}") from None


def _marks(value: object) -> dict[str, Mark]:
    if not isinstance(value, str):
        raise _damaged(f"'marks' is {_short(value)}")
    try:
        return unpack_marks(value)
    except ValueError as error:
        raise _damaged(f"'marks' is {error}") from None


def _stream(value: object) -> SourceStream | None:
    try:
        return None if value is None else parse_stream(value)
    except ValueError as error:
        raise _damaged(f"'stream' is {_short(value)}: {error}") from None


def _foreign(value: object) -> DataFormatError:
    return DataFormatError(
        f"the checkpoint has an offset that is not one of format('aeron'): {_short(value)}", remedy=_NEW_CHECKPOINT
    )


def _damaged(cause: str) -> DataFormatError:
    return DataFormatError(
        f"the checkpoint has an offset of format('aeron') that is damaged: {cause}", remedy=_NEW_CHECKPOINT
    )


def _short(value: object) -> str:
    try:
        text = value if isinstance(value, str) else json.dumps(value, default=repr)
    except RecursionError:  # the stack is longer here than where the value was parsed
        text = f"a nested {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


_FINGERPRINT_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Finished:
    """A recording that was read to ``position``, after which it has only an incomplete ``tail`` (usually 0 bytes)."""

    position: int
    tail: int
    fingerprint: str

    @property
    def seen(self) -> int:
        """The recording's end when it was finished; a later end means that the recording was extended."""
        return self.position + self.tail

    @property
    def packable(self) -> bool:
        """Whether the positions are aligned, as Aeron's are, so that ``pack`` is lossless."""
        return self.position % FRAME_ALIGNMENT == 0 and self.tail % FRAME_ALIGNMENT == 0


def pack(finished: Mapping[str, Finished]) -> str:
    """Return finished recordings as a text; equal recordings have the same text. All must be ``packable``."""
    return _pack_values(finished, _encode)


def unpack(text: str) -> dict[str, Finished]:
    """Return the recordings of a text of ``pack``, in its order. Raises ValueError for other texts."""
    return _unpack_values(text, _decode, _encode)


def _encode(one: Finished) -> bytes:
    numbers = varint(one.position // FRAME_ALIGNMENT) + varint(one.tail // FRAME_ALIGNMENT)
    return numbers + bytes.fromhex(one.fingerprint)


def _decode(reader: _ByteReader) -> Finished:
    position, tail = reader.length(), reader.length()
    return Finished(position, tail, reader.bytes(_FINGERPRINT_BYTES).hex())


def _pack_values(values: Mapping[str, Value], encode: Callable[[Value], bytes]) -> str:
    """Return the values, by recording, as a text; equal values have the same text."""
    entries = sorted(((*split_key(key), one) for key, one in values.items()), key=lambda entry: entry[:2])
    out = bytearray()
    for archive, group in groupby(entries, key=lambda entry: entry[0]):
        members = list(group)
        name = archive.encode("utf-8")
        out += varint(len(name)) + name + varint(len(members))
        before = 0
        for _, number, one in members:
            out += varint(number - before) + encode(one)
            before = number
    return base64.b64encode(out).decode("ascii")


def _unpack_values(
    text: str, decode: Callable[[_ByteReader], Value], encode: Callable[[Value], bytes]
) -> dict[str, Value]:
    """Return the values of a text of ``_pack_values``, in its order. Raises ValueError for other texts."""
    if not _BASE64.fullmatch(text):
        raise ValueError("not base64")
    reader = _ByteReader(base64.b64decode(text))
    values: dict[str, Value] = {}
    while reader.remaining:
        length = reader.varint()
        if length > _MAX_NAME_BYTES:
            raise ValueError(f"not valid: an archive's name has {length} bytes")
        try:
            archive = reader.bytes(length).decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError("not valid: an archive's name is not UTF-8") from None
        number = 0
        for _ in range(reader.varint()):
            number += reader.varint()
            if number > _MAX_NUMBER:
                raise ValueError("not valid: a recording's id is too large")
            values[recording_key(archive, number)] = decode(reader)
    # Equal values must have only one text, because offsets are compared as texts.
    if _pack_values(values, encode) != text:
        raise ValueError("not in canonical form")
    return values


def varint(number: int) -> bytes:
    """Return a number that is not negative in as few bytes as it needs, seven bits in each."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class _ByteReader:
    """Reads bytes in order. Raises ValueError beyond the end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def remaining(self) -> int:
        """Bytes that are not read yet."""
        return len(self._data) - self._at

    def bytes(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        if count > self.remaining:
            raise ValueError("truncated")
        self._at += count
        return self._data[self._at - count : self._at]

    def length(self) -> int:
        """Return the length or position that comes next as a multiple of ``FRAME_ALIGNMENT``."""
        number = self.varint() * FRAME_ALIGNMENT
        if number > _MAX_NUMBER:
            raise ValueError("not valid: a position is too large")
        return number

    def varint(self) -> int:
        """Return the number that comes next."""
        number = shift = 0
        while shift < _MAX_VARINT_BITS:
            byte = self.bytes(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
        raise ValueError("not valid: a number is too long")
