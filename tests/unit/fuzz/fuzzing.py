"""Gives a decoder damaged inputs, and reports what it must not do: raise another error, take long, take much memory.

The inputs of a run follow from a seed, a decoder's name and nothing else. A fault has the seed, the number of the input
in its run, and the input itself, as short as it could be made.
"""

from __future__ import annotations

import gc
import re
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from aeron_spark.errors import AeronSparkError, DataFormatError
from tests.budget import slowness
from tests.unit.fuzz.forms import EXTREMES, Form, Part
from tests.unit.fuzz.values import find_fault

SAMPLES: Final = 100  # valid inputs of a run, from which the damaged ones are made
LIMIT_S: Final = 0.1  # processor time of the thread for one input, on the machine of tests/budget.py
LIMITED_BYTES: Final = 64 << 10  # the longest input for which the limit holds
LARGE_BYTES: Final = 1 << 20
MAX_GROWTH: Final = 2.5  # of the time, in relation to the length
MEMORY_FACTOR: Final = 250  # bytes of memory for a byte of input: {} has 64 for one byte, and a struct of {} has more
MEMORY_BASE: Final = 1 << 20
MAX_SHRINKS: Final = 3_000  # calls of the decoder to shorten one input


_VALUE: Final = re.compile(r"'.*|\d.*|number .*")


def _unchanged(data: bytes) -> bytes:
    return data


@dataclass(frozen=True)
class Decoder:
    """A decoder of bytes that somebody else wrote.

    ``sample`` makes a valid input. ``use`` does what the program does next with the value, such as encoding it again;
    its time is not counted. ``seal`` makes the checksum of a damaged input right. ``raises`` are the errors that the
    decoder documents.
    """

    name: str
    decode: Callable[[bytes], Any]
    sample: Callable[[Random], bytes]
    form: Form
    raises: tuple[type[AeronSparkError], ...] = (DataFormatError,)
    use: Callable[[Any], object] = repr
    seal: Callable[[bytes], bytes] = _unchanged
    any_number: bool = False  # its values may have any numbers, such as NaN
    long_samples: Callable[[int], dict[str, bytes]] = lambda size: {}  # valid or nearly valid inputs of a size, by name
    share: int = 1  # of the inputs of a run: one in ``share``, for a slow decoder

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Fault:
    """The outcome of a decoder for ``data``. ``number`` is that of the input in the run of ``seed``, or its name."""

    decoder: str
    seed: int
    number: int | str
    what: str
    data: bytes

    def __str__(self) -> str:
        shown = self.data.hex() if len(self.data) <= 2_000 else f"{self.data[:1_000].hex()}... ({len(self.data)} bytes)"
        return f"{self.decoder}, seed {self.seed}, input {self.number}: {self.what}\n    {shown}"


@dataclass
class Outcome:
    """The outcome of a run: its faults, one of each kind, and the slowest input."""

    faults: list[Fault] = field(default_factory=list)
    accepted: int = 0
    slowest_s: float = 0.0
    slowest: bytes = b""
    slowest_name: str = ""


class Checked(NamedTuple):
    """The rule that a decoder broke with an input, or None; the time that it took; whether it accepted it."""

    fault: str | None
    seconds: float
    is_accepted: bool = False


def check(decoder: Decoder, data: bytes, clock: Callable[[], float] = time.thread_time) -> Checked:
    """Give the decoder an input, and use the value."""
    begin = clock()
    try:
        value = decoder.decode(data)
    except decoder.raises as error:
        seconds = clock() - begin
        fault = find_fault(error.what)
        return Checked(fault and f"the error's text cannot be encoded: {error.what[:80]!r}", seconds)
    except Exception as error:
        return Checked(f"raises {type(error).__name__}: {str(error)[:200]}", clock() - begin)
    seconds = clock() - begin
    fault = find_fault(value, any_number=decoder.any_number)
    if fault is not None:
        return Checked(f"returns {fault}", seconds, True)
    try:
        decoder.use(value)
    except Exception as error:
        return Checked(f"returns a value whose use raises {type(error).__name__}: {str(error)[:200]}", seconds, True)
    return Checked(None, seconds, True)


def run(decoder: Decoder, seed: int, count: int) -> Outcome:
    """Give the decoder ``count`` short inputs."""
    outcome, seen = Outcome(), set[str]()
    for number, data in enumerate(inputs(decoder, seed, count)):
        what, seconds, is_accepted = check(decoder, data)
        outcome.accepted += is_accepted
        if seconds > outcome.slowest_s and (seconds := _least_time(decoder, data, seconds)) > outcome.slowest_s:
            outcome.slowest_s, outcome.slowest, outcome.slowest_name = seconds, data, str(number)
        if what is None and _is_too_long(seconds):
            what = f"takes {seconds:.2f} s"
        if what is not None and (kind := _kind(what)) not in seen:
            seen.add(kind)
            short = data if kind == "takes " else shrunk(decoder, data, kind)
            outcome.faults.append(Fault(decoder.name, seed, number, check(decoder, short).fault or what, short))
    return outcome


def _is_too_long(seconds: float) -> bool:
    """Whether a decoder took longer than its limit, which rises with the slowness of the machine."""
    return seconds > LIMIT_S and seconds > LIMIT_S * max(slowness() for _ in range(3))


def _kind(what: str) -> str:
    """Return what is equal in faults of one cause: the words before values."""
    return _VALUE.sub("", what.split(": ")[0])


def _least_time(decoder: Decoder, data: bytes, seconds: float) -> float:
    """Return the least time of this and some repetitions: a collection of garbage may have been in the first one."""
    return min(seconds, *(check(decoder, data).seconds for _ in range(3)))


def inputs(decoder: Decoder, seed: int, count: int) -> Iterator[bytes]:
    """Yield the valid inputs of a run, and then damaged ones."""
    source = Random(f"{seed} {decoder.name}")
    samples = [decoder.sample(source) for _ in range(SAMPLES)]
    yield from samples[:count]
    pool = [(data, decoder.form.parts(data)) for data in samples]
    seal, unit, values = decoder.seal, source.random, decoder.form.values
    for _ in range(count - SAMPLES):
        data = _damaged(source, unit, pool, values)
        yield seal(data) if unit() < 0.9 else data


def _damaged(
    source: Random, unit: Callable[[], float], pool: list[tuple[bytes, list[Part]]], values: Sequence[bytes]
) -> bytes:
    data, parts = pool[int(unit() * len(pool))]
    if parts and unit() < 0.7:
        begin, end = parts[int(unit() * len(parts))]
        if unit() < 0.7:
            value = values[int(unit() * len(values))]
        else:  # a part of another sample, or of this one
            other, others = pool[int(unit() * len(pool))]
            if not others:
                return data
            first, last = others[int(unit() * len(others))]
            value = other[first:last]
        data = data[:begin] + value + data[end:]
        if unit() < 0.6:
            return data
    for _ in range(1 + int(unit() * 2)):
        data = _damaged_bytes(source, unit, data, pool)
    return data


def _damaged_bytes(
    source: Random, unit: Callable[[], float], data: bytes, pool: list[tuple[bytes, list[Part]]]
) -> bytes:
    size = len(data)
    if not size:
        return source.randbytes(int(unit() * 20))
    at = int(unit() * size)
    match int(unit() * 8):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes((data[at] ^ 1 << int(unit() * 8),)) + data[at + 1 :]
        case 2:
            return data[:at] + bytes((int(unit() * 256),)) + data[at + 1 :]
        case 3:
            extreme = EXTREMES[int(unit() * len(EXTREMES))]
            return data[:at] + extreme + data[at + len(extreme) :]
        case 4:  # twice
            end = at + int(unit() * min(40, size - at))
            return data[:end] + data[at:end] + data[end:]
        case 5:
            return data[:at] + data[at + int(unit() * 20) :]
        case 6:
            other = pool[int(unit() * len(pool))][0]
            return data[:at] + other[int(unit() * len(other)) :]
        case _:
            return data[:at] + source.randbytes(1 + int(unit() * 8)) + data[at:]


def long_inputs(decoder: Decoder, seed: int, size: int, places: int) -> Iterator[tuple[str, bytes]]:
    """Yield inputs of about ``size`` bytes, by name.

    A long part stands alone, after a valid input, and at up to ``places`` places of a valid input.
    """
    source = Random(f"{seed} {decoder.name}")
    longest = max((decoder.sample(source) for _ in range(20)), key=len)
    parts = decoder.form.parts(longest)
    chosen = parts if len(parts) <= places else source.sample(parts, places)
    yield from decoder.long_samples(size).items()
    for name, value in decoder.form.long_values(size).items():
        yield f"{name} alone", value
        yield f"{name} after a valid input", longest + value
        for begin, end in chosen:
            yield f"{name} at byte {begin}", decoder.seal(longest[:begin] + value + longest[end:])


def run_long(decoder: Decoder, seed: int, *, places: int = 4) -> Outcome:
    """Give the decoder inputs of ``LIMITED_BYTES``, and measure time and memory."""
    outcome = Outcome()
    for name, whole in long_inputs(decoder, seed, LIMITED_BYTES - 4_096, places):
        data = whole[:LIMITED_BYTES]
        what, seconds, is_accepted = check(decoder, data)
        outcome.accepted += is_accepted
        if seconds > LIMIT_S / 2:
            seconds = _least_time(decoder, data, seconds)
        if seconds > outcome.slowest_s:
            outcome.slowest_s, outcome.slowest, outcome.slowest_name = seconds, data, name
        if what is None and _is_too_long(seconds):
            what = f"takes {seconds:.2f} s for {len(data)} bytes"
        what = what or memory_fault(decoder, data)
        if what is not None:
            outcome.faults.append(Fault(decoder.name, seed, name, what, data))
    return outcome


def memory_fault(decoder: Decoder, data: bytes) -> str | None:
    """Return the fault if a decoder allocates more memory than the input justifies."""
    tracemalloc.start()
    try:
        with suppress(*decoder.raises):
            decoder.decode(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    limit = MEMORY_BASE + MEMORY_FACTOR * len(data)
    return f"takes {peak >> 20} MiB of memory for {len(data)} bytes" if peak > limit else None


def growth_faults(decoder: Decoder, seed: int, *, size: int = LARGE_BYTES, places: int = 2) -> list[Fault]:
    """Return the faults of inputs of ``size`` bytes whose time grows faster than their length, from a quarter on."""
    faults = []
    short = dict(long_inputs(decoder, seed, size // 4, places))
    gc.disable()  # the collections in a small process would take more time for each object than those in a large one
    try:
        for name, data in long_inputs(decoder, seed, size, places):
            seconds = check(decoder, data).seconds
            if seconds < LIMIT_S:
                continue
            before = _least_time(decoder, short[name], check(decoder, short[name]).seconds)
            seconds = min(seconds, check(decoder, data).seconds) if seconds < 1 else seconds
            if seconds / max(before, 0.001) * len(short[name]) / len(data) > MAX_GROWTH:
                what = f"takes {seconds:.2f} s for {len(data)} bytes, and {before:.2f} s for {len(short[name])}"
                faults.append(Fault(decoder.name, seed, name, what, data))
    finally:
        gc.enable()
    return faults


def shrunk(decoder: Decoder, data: bytes, kind: str) -> bytes:
    """Return a shorter input with a fault of the same kind: parts of the input are left out."""
    left, step = MAX_SHRINKS, max(1, len(data) // 2)
    while left > 0:
        before, at = len(data), 0
        while at < len(data) and left > 0:
            left -= 1
            shorter = data[:at] + data[at + step :]
            what = check(decoder, shorter).fault
            if what is not None and _kind(what) == kind:
                data = shorter
            else:
                at += step
        if step > 1:
            step //= 2
        elif len(data) == before:
            break
    return data
