"""Walks over frame headers in Python; ``tests/aeron/test_boundaries.py`` compares them with those in Java."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeron_spark.aeron import boundary as frame_walk
from aeron_spark.aeron.boundary import (
    FrameWalk,
    UnwalkableFilesError,
    Walked,
    WalkRange,
    WantedBoundary,
    find_end,
    walk_files,
)
from aeron_spark.aeron.recording import Recording
from aeron_spark.wire.chunks import Content, Header, encode_header

TERM = 4096  # shorter than an archive allows, so that few frames fill several
SEGMENT = 2 * TERM
PAYLOAD = 224  # bytes of a fragment
RECORDING = Recording(3, 0, None, 0, None, 5, SEGMENT, TERM, 256, 9, 1001, "aeron:ipc", "aeron:ipc", "")


def frame(payload: bytes, flags: int = 0xC0, kind: int = 1) -> bytes:
    length = 32 + len(payload)
    data = struct.pack("<iBBHiiiq", length, 0, flags, kind, 0, 9, 1001, 0).ljust(32, b"\0") + payload
    return data.ljust(-(-length // 32) * 32, b"\0")


def message(payload: bytes) -> bytes:
    pieces = [payload[at : at + PAYLOAD] for at in range(0, len(payload), PAYLOAD)] or [b""]
    last = len(pieces) - 1
    return b"".join(frame(piece, 0x80 * (at == 0) | 0x40 * (at == last)) for at, piece in enumerate(pieces))


def log_of(payloads: list[bytes]) -> tuple[bytes, list[int], list[int]]:
    """Return a log, with padding at the ends of terms, and the begin and end of each message."""
    log, begins, ends = b"", [], []
    for payload in payloads:
        data = message(payload)
        room = -len(log) % TERM or TERM
        if len(data) > room:
            log += struct.pack("<iBBHiiiq", room, 0, 0xC0, 0, 0, 9, 1001, 0).ljust(32, b"\0")
            log = log.ljust(-(-len(log) // TERM) * TERM, b"\0")
        begins.append(len(log))
        log += data
        ends.append(len(log))
    return log, begins, ends


def write(folder: Path, log: bytes) -> None:
    for base in range(0, len(log), SEGMENT):
        (folder / f"{RECORDING.id}-{base}.rec").write_bytes(log[base : base + SEGMENT].ljust(SEGMENT, b"\0"))


def chunk(payload: bytes, group: int, *, first: bool = False, last: bool = False, rows: int = 1) -> bytes:
    header = Header(Content.BYTES, 10**6, rows, 0 if first else 1, -1 if first else group, first=first, last=last)
    return encode_header(header, payload) + payload


def boundary(folder: Path, start: int, limit: int, end: int, rows: int | None, *, framed: bool) -> tuple[int, int]:
    def walk(wanted: WalkRange) -> Walked:
        return walk_files(folder, RECORDING, wanted, framed=framed)

    return find_end(walk, TERM, WantedBoundary(start, limit, end, rows))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 900), min_size=1, max_size=60),
    st.randoms(use_true_random=False),
    st.sampled_from([None, None, 1, 2, 7]),
)
def test_a_boundary_is_the_end_of_the_last_message_within_the_limits(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], random: object, rows: int | None
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log, begins, ends = log_of([bytes(size) for size in sizes])
    write(folder, log)
    first = random.randrange(len(begins))
    start = begins[first]
    limit = random.randrange(start, len(log) + 1)
    position, counted = boundary(folder, start, limit, len(log), rows, framed=False)
    count = 0
    while first + count < len(ends) and ends[first + count] <= limit and (rows is None or count < rows):
        count += 1
    count = max(count, 1)
    # The boundary may be after the padding that follows the last message.
    following = begins[first + count] if first + count < len(begins) else len(log)
    assert ends[first + count - 1] <= position <= following
    assert rows is None or counted == count


def test_a_group_of_chunks_is_not_divided(tmp_path: Path) -> None:
    payloads = [chunk(b"a", -1, first=True, last=True), chunk(bytes(500), -1, first=True)]
    log, begins, ends = log_of(payloads)
    group = begins[1]
    payloads += [chunk(bytes(500), group), chunk(bytes(500), group, last=True, rows=3), b"plain"]
    log, begins, ends = log_of(payloads)
    write(tmp_path, log)
    for limit in (ends[0], ends[1], ends[2], ends[3] - 32):
        assert boundary(tmp_path, 0, limit, len(log), None, framed=True) == (ends[0], 1), limit
    assert boundary(tmp_path, 0, ends[3], len(log), None, framed=True) == (ends[3], 4)
    assert boundary(tmp_path, 0, len(log), len(log), 3, framed=True) == (ends[0], 1)
    assert boundary(tmp_path, group, group, len(log), 1, framed=True) == (ends[3], 3)
    assert boundary(tmp_path, group, group, ends[2], 1, framed=True) == (group, 0)  # the group is not complete


def test_a_group_that_spans_terms_begins_where_its_chunks_say(tmp_path: Path) -> None:
    payloads = [b"plain", *(chunk(bytes(900), 64, first=index == 0) for index in range(6))]
    log, begins, _ = log_of(payloads)
    assert begins[1] == 64
    assert begins[-1] > TERM
    write(tmp_path, log)
    walked = walk_files(tmp_path, RECORDING, WalkRange(TERM, len(log), len(log)), framed=True)
    assert (walked.boundary, walked.open) == (None, 64)
    assert boundary(tmp_path, 0, len(log), len(log), None, framed=True)[0] == 64


def test_the_walk_ends_inside_a_message_that_is_not_complete_yet(tmp_path: Path) -> None:
    log, _, ends = log_of([bytes(100), bytes(700)])
    write(tmp_path, log)
    for end in range(ends[0], ends[1], 256):  # a recorded position is the end of a frame
        assert boundary(tmp_path, 0, end, end, None, framed=False)[0] == ends[0], end
    assert boundary(tmp_path, ends[0], ends[0] + 32, ends[0] + 512, None, framed=False) == (ends[0], 0)


def test_a_limit_inside_a_frame_is_not_damage(tmp_path: Path) -> None:
    log, _, ends = log_of([bytes(100)] * 60)
    write(tmp_path, log)
    for limit in range(TERM + 128, TERM + 512, 32):
        expected = max(TERM, *(end for end in ends if end <= limit))  # a term begins after padding
        assert boundary(tmp_path, 0, limit, len(log), None, framed=False)[0] == expected, limit


def test_a_missing_file_gives_no_boundary(tmp_path: Path) -> None:
    log, _, _ = log_of([bytes(100)] * 100)
    with pytest.raises(UnwalkableFilesError, match="no readable file at position 0"):
        boundary(tmp_path, 0, len(log), len(log), 1_000, framed=False)


# The bytes of a damaged part: a length of 0, below 0, below a header, and with no frame of that length or type.
DAMAGE = {
    "zeros": bytes(32),
    "ones": b"\xff" * 32,
    "short": struct.pack("<ixBH", 31, 0xC0, 1).ljust(32, b"\0"),
    "beyond the term": struct.pack("<ixBH", 2 * TERM, 0xC0, 1).ljust(32, b"\0"),
    "longest": struct.pack("<ixBH", 2**31 - 1, 0xC0, 1).ljust(32, b"\0"),
    "another type": struct.pack("<ixBH", 160, 0xC0, 5).ljust(32, b"\0"),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("rows", [None, 1_000])
def test_a_damaged_part_is_passed_over_to_the_next_term_or_the_recorded_end(
    tmp_path: Path, kind: str, rows: int | None
) -> None:
    """Regression: the damaged part was taken for the end of the data, and a query did not read the rest."""
    log, begins, _ = log_of([bytes(100)] * 100)  # 25 in each term, without padding but at its end
    assert begins[25] == TERM
    end = len(log)
    for at in (begins[0], begins[7], begins[24], begins[25], begins[-1]):
        write(tmp_path, log[:at] + DAMAGE[kind] * 2 + log[at + 64 :])
        assert boundary(tmp_path, 0, end, end, rows, framed=False)[0] == end, at
        term_end = min(at - at % TERM + TERM, end)
        # A limit in the damaged part: up to it, then over it as if it were one message.
        limit = min(at + 64, end)
        assert boundary(tmp_path, 0, limit, end, None, framed=False)[0] == (at or term_end), at
        assert boundary(tmp_path, at, limit, end, rows, framed=False) == (term_end, 0), at
        # A recording that ends inside the damaged part has all of its frames before this position.
        assert boundary(tmp_path, 0, at + 32, at + 32, rows, framed=False)[0] == at + 32, at


def test_a_file_that_is_cut_off_is_damaged_from_there(tmp_path: Path) -> None:
    log, begins, _ = log_of([bytes(100)] * 100)
    write(tmp_path, log)
    path = tmp_path / f"3-{SEGMENT}.rec"
    cut = begins[60] - SEGMENT + 32
    path.write_bytes(path.read_bytes()[:cut])
    assert boundary(tmp_path, 0, begins[70], len(log), None, framed=False)[0] == begins[60]
    assert boundary(tmp_path, begins[60], len(log), len(log), 1_000, framed=False) == (len(log), 0)


def test_damage_abandons_the_message_and_the_group_before_it(tmp_path: Path) -> None:
    group = [chunk(bytes(900), 64, first=index == 0, last=index == 9, rows=4) for index in range(10)]
    log, begins, ends = log_of([b"plain", *group, b"plain"])
    at = begins[2] + 256  # inside a message, inside the group
    write(tmp_path, log[:at] + bytes(256) + log[at + 256 :])
    assert boundary(tmp_path, 0, len(log), len(log), None, framed=True)[0] == ends[-1]
    assert boundary(tmp_path, 64, 64, len(log), 1, framed=True) == (TERM, 0)


def test_a_walk_over_too_many_frames_is_left_to_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _, _ = log_of([bytes(100)] * 30)
    write(tmp_path, log)
    monkeypatch.setattr(frame_walk, "MAX_FRAMES", 10)
    monkeypatch.setattr(frame_walk, "READ_BYTES", 800)
    with pytest.raises(UnwalkableFilesError, match="more than 10 frames") as caught:
        boundary(tmp_path, 0, len(log), len(log), 1_000, framed=False)
    assert caught.value.is_too_long


def test_a_frame_at_the_end_of_a_read_is_walked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _, ends = log_of([bytes(100)] * 100)
    write(tmp_path, log)
    for size in (160, 200, 288, 4096):  # the longest frame has 160 bytes, without padding
        monkeypatch.setattr(frame_walk, "READ_BYTES", size)
        assert boundary(tmp_path, 0, ends[-1], len(log), 1_000, framed=False) == (ends[-1], 100)


def test_a_damaged_length_is_not_followed(tmp_path: Path) -> None:
    walk = FrameWalk(WalkRange(0, 320, 320), framed=False, term_length=TERM)
    assert walk.walk(struct.pack("<i", -5).ljust(320, b"\0"), 0) == 0
    assert walk.walk(struct.pack("<ixBH", 2**31 - 1, 0xC0, 1).ljust(320, b"\0"), 0) == 0
    assert walk.result == Walked(None, 0, None)
