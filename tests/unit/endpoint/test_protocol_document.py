"""The numbers in the hand-written text of docs/endpoint-*.md equal those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from aeron_spark.endpoint.links import MIN_MESSAGE_BYTES, OPEN
from aeron_spark.options import ClientOptions
from aeron_spark.protocol.client_handshake import MAX_RETRIES
from aeron_spark.protocol.frames import MAX_RECORDS, MIN_BATCH_RECORDS, RecordKind, encode_close
from aeron_spark.protocol.handshake_payloads import MAX_TYPES
from aeron_spark.protocol.ids import FIRST_SESSION_ID, FIRST_STREAM_ID, LAST_SESSION_ID, REUSE_DELAY_S
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.message_types import MAX_DECIMAL_CHARACTERS, MESSAGE_SHAPE
from aeron_spark.protocol.rpc_messages import ARGUMENTS_SHAPE, MAX_ARGUMENTS, MAX_TEXT_CHARACTERS
from aeron_spark.protocol.rpc_objects import CALL_TIMEOUT, MAX_OBJECTS
from aeron_spark.protocol.session import RECORD_COST
from aeron_spark.protocol.tickets import MAX_CONNECTIONS_PER_KEY, MAX_OFFERS, MAX_SESSIONS
from aeron_spark.protocol.transfers import (
    MAX_MEMORY_BYTES,
    MAX_NAME_BYTES,
    MAX_SPILLED_BYTES,
    MAX_TEXT_BYTES,
    MAX_TRANSFERS,
    MEMORY_LIMIT,
)
from tools.protocol_page import RECORDS, read_pages

ROOT = Path(__file__).parents[3]
PAGE = " ".join(" ".join(read_pages().values()).split())
TIMES, LIMITS = Times(), ClientOptions().session_limits
SMALL = {2: "two", 3: "three", 4: "four", 5: "five"}


@pytest.mark.parametrize(
    "text",
    [
        f"at least one and at most {MAX_RECORDS:,}, up to the end of the frame",
        f"a BATCH of {MIN_BATCH_RECORDS} or more consecutive records with equal kind and flags",
        f"at least {MIN_MESSAGE_BYTES} bytes. No endpoint sends a message longer",
        f"sends an ACK {LIMITS.ack_seconds * 1000:g} ms after the first unacknowledged record, or at once after "
        f"{LIMITS.ack_bytes >> 10} KiB",
        f"| bytes kept, {RECORD_COST} a record beside its payload | {LIMITS.buffer_bytes >> 20} MiB |",
        f"| age of unacknowledged messages without a link | {LIMITS.buffer_seconds:g} s |",
        f"| age of a session without a link | {TIMES.retention_seconds:g} s, at least "
        f"{TIMES.min_retention_seconds:g} s |",
        f"| payload of one record | {LIMITS.max_record_bytes >> 10} KiB, or",
        f"| sessions of a server, of one client key | {MAX_SESSIONS:,}, {MAX_CONNECTIONS_PER_KEY} |",
        f"the last {SMALL[MAX_OFFERS]} tickets that the server sent are valid",
        f"Silence of {TIMES.expiry_seconds:g} s *after* Aeron first reported a disconnection",
        f"has its full set-up time, {TIMES.setup_seconds:g} s",
        f"that has sent no frame for {TIMES.keep_alive_seconds:g} s sends a PING",
        f"ends the link after {2 * TIMES.keep_alive_seconds:g} s without any frame of its peer",
        f"A ping has a deadline ({TIMES.ping_seconds:g} s)",
        f"costs one more HELLO, {SMALL[MAX_RETRIES]} at most in an attempt",
        f"A client follows at most {SMALL[MAX_RETRIES]} RETRYs in an attempt",
        f"({FIRST_SESSION_ID:#x} to {LAST_SESSION_ID:#x} unless set)",
        f"its stream ids are from {FIRST_STREAM_ID:,} to 2^31 - 1",
        f"does not use a released id again for {REUSE_DELAY_S:g} s",
        f"the first {MAX_TYPES} registered types",
        f"at most {MESSAGE_SHAPE.depth} levels, at most {MESSAGE_SHAPE.items:,} entries",
        f"a Decimal of at most {MAX_DECIMAL_CHARACTERS} characters",
        f"A call waits {CALL_TIMEOUT:g} seconds for its response unless",
        f"A call has at most {MAX_ARGUMENTS} arguments",
        f"at most {ARGUMENTS_SHAPE.depth} levels and {ARGUMENTS_SHAPE.items:,} entries",
        f"a text of at most {MAX_TEXT_CHARACTERS} characters",
        f"A connection has at most {MAX_OBJECTS:,} objects",
        f"in memory if its total is at most {MEMORY_LIMIT >> 20} MiB",
        f"connection are at most {MAX_MEMORY_BYTES >> 20} MiB",
        f"A connection has at most {MAX_TRANSFERS} open transfers, and its files have at most "
        f"{MAX_SPILLED_BYTES >> 30} GiB in total",
        f"(FILE only, at most {MAX_NAME_BYTES} bytes)",
        f"a text in UTF-8 (at most {MAX_TEXT_BYTES} bytes)",
    ],
)
def test_numbers_on_the_page_equal_those_of_the_code(text: str) -> None:
    assert text in PAGE


def test_each_kind_of_record_is_explained() -> None:
    assert set(RECORDS) == set(RecordKind)


def test_the_page_has_the_layouts_of_open_and_close() -> None:
    assert (OPEN.format, OPEN.size) == (">QI", 12)
    assert "u64 received, u32 bytes of the longest message its sender accepts" in PAGE
    assert (encode_close(False), encode_close(True)) == (b"\x00", b"\x01")
    assert "u8: 0 everything ends, 1 the session is kept" in PAGE


def test_no_parts_of_pages_remain() -> None:
    assert not list((ROOT / "docs").glob("*.part.md"))
