"""Two sessions, attached to each other, that exchange frames by function calls."""

from __future__ import annotations

from aeron_spark.protocol.frames import Frame, OutgoingRecord, Record, decode
from aeron_spark.protocol.session import Session, SessionLimits

LIMITS = SessionLimits(
    buffer_bytes=100_000, buffer_seconds=60.0, retention_seconds=120.0, ack_bytes=5_000, max_record_bytes=10_000
)
FRAME = 12_000  # bytes


def attached_pair(limits: SessionLimits = LIMITS) -> tuple[Session, Session]:
    one, other = Session(limits, 0.0), Session(limits, 0.0)
    one.attach(0, 0.0)
    other.attach(0, 0.0)
    return one, other


def reattach(one: Session, other: Session, now: float) -> None:
    one.detach(now)
    other.detach(now)
    one.attach(other.received, now)
    other.attach(one.received, now)


def next_frame(
    session: Session, now: float = 0.0, max_bytes: int = FRAME, unsequenced: list[OutgoingRecord] | None = None
) -> Frame:
    buffers = session.take(max_bytes, now, unsequenced or [])
    assert buffers is not None
    plaintext = b"".join(buffers)
    assert len(plaintext) <= max_bytes
    return decode(plaintext)


def transmit_all(source: Session, target: Session, now: float = 0.0) -> list[bytes]:
    """Transmit all waiting frames, and return the payloads of the sequenced records that arrived."""
    arrived: list[Record] = []
    while (buffers := source.take(FRAME, now)) is not None:
        arrived += target.receive(decode(b"".join(buffers)), now)
    return [bytes(payload) for kind, _, payload in arrived if kind < 64]


def payloads(count: int, begin: int = 0) -> list[bytes]:
    return [number.to_bytes(4, "big") for number in range(begin, begin + count)]
