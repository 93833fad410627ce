"""One end of a connection in virtual time: its core, and a link whose frames a test moves."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from types import SimpleNamespace
from typing import Any, Final

from aeron_spark.endpoint.connection import Connection, ConnectionCore
from aeron_spark.endpoint.deliveries import Listeners
from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.owner import PeerInfo
from aeron_spark.endpoint.usage import MemoryAccount
from aeron_spark.errors import AeronSparkError, WaitTimeout
from aeron_spark.protocol.frames import FRAME_HEAD, RECORD_HEAD, Buffer, Record, RecordKind, encode_number
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.rpc_dispatch import ErrorCodes
from aeron_spark.protocol.rpc_objects import GlobalObjects
from aeron_spark.protocol.session import SessionLimits
from tests.unit.endpoint.endpoints import client_options

LIMITS: Final = SessionLimits(
    buffer_bytes=2_000, buffer_seconds=60.0, retention_seconds=60.0, ack_bytes=1_000, ack_seconds=0.5,
    max_record_bytes=1_000,
)  # fmt: skip
TIMES: Final = Times(
    expiry_seconds=4.0, linger_seconds=0.0, keep_alive_seconds=15.0, ping_seconds=3.0, retention_seconds=60.0
)
FRAME: Final = 4_000


class PlainLink:
    """A link that does not encrypt, and keeps the frames for the peer. ``budget`` is the number that Aeron takes."""

    token: Final = 1
    last_result = None

    def __init__(self, room: int = FRAME, budget: float = math.inf) -> None:
        self.room = room
        self.connected = True
        self.budget = budget
        self.frames: deque[bytes] = deque()
        self.on_send: Callable[[], object] = lambda: None

    @property
    def max_record_bytes(self) -> int:
        return self.room - FRAME_HEAD.size - RECORD_HEAD.size

    @property
    def is_blocked(self) -> bool:
        return self.budget < 1

    def retry(self, now: float, timeout_s: float = 0.0) -> bool:
        return not self.is_blocked

    def send(self, plaintext: Sequence[Buffer], now: float, timeout_s: float = 0.0) -> bool:
        self.budget -= 1
        self.frames.append(b"".join(plaintext))
        self.on_send()
        return True

    def decrypt(self, payload: memoryview) -> memoryview:
        return payload


class AtOnce(Executor):
    """Runs work on the thread of the test."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        fn(*args, **kwargs)
        return Future()


class End:
    """One end. ``taken`` has what it gave to listeners, calls and transfers, by kind, in this order.

    The entry of messages is a list of their kinds and payloads.
    """

    def __init__(
        self, limits: SessionLimits = LIMITS, times: Times = TIMES, *, attached: bool = True, budget: float = math.inf,
        now: float = 0.0,
    ) -> None:  # fmt: skip
        self.now = now
        self.taken: list[tuple[int, Any]] = []
        self.reported: list[BaseException] = []
        self.link = PlainLink()
        self.flush_requests = 0
        self._budget = budget
        loop: Any = Loop("test", lambda: self.now)
        loop.endpoint = SimpleNamespace(inbox=SimpleNamespace(pause=lambda _: None, resume=lambda _: None))
        loop.pool, loop.request_flush = AtOnce(), self._count_request
        owner: Any = SimpleNamespace(
            options=client_options(session_limits=limits, times=times), types=Types(), objects=GlobalObjects(),
            error_codes=ErrorCodes(), loop=loop, worker_pool=SimpleNamespace(drop=lambda *_: 0),
            report=lambda _, error: self.reported.append(error), memory=MemoryAccount(lambda: 0),
            message_listeners=Listeners(),
        )  # fmt: skip
        self.core = ConnectionCore(owner, PeerInfo(bytes(32)), 7, Connection)
        for part, method, take in (
            (self.core.deliveries, "deliver", self._take_messages),
            (self.core.deliveries, "deliver_transfer", lambda delivery: None),
            (self.core.peer_calls, "take", self._take_requests),
            (self.core.rpc, "take_response", lambda payload: self._take(RecordKind.RETURN, payload)),
            (self.core.transfers, "take_record", self._take),
            (self.core.transfers, "take_end", lambda payload: self._take(RecordKind.TRANSFER_FINISHED, payload)),
        ):
            setattr(part, method, take)
        self._confirm = self.core.sender.confirm
        self.core.sender.confirm = self._take_confirmation  # type: ignore[method-assign]
        if attached:
            self.attach(0, now)

    def attach(self, peer_received: int, now: float, room: int = FRAME) -> None:
        """Attach another link, which counts as connected."""
        self.now, self.link = now, PlainLink(room, self._budget)
        self.core.attach(self.link, peer_received, now)  # type: ignore[arg-type]

    def detach(self, now: float) -> None:
        self.now = now
        self.core.detach(now)

    def push(self, kind: int, *payloads: bytes, now: float | None = None) -> int:
        """Push records of one kind without waiting; return how many were accepted."""
        self.now = self.now if now is None else now
        session = self.core.session
        before = session.acknowledged + session.pending
        try:
            if len(payloads) == 1:
                self.core.sender.push(kind, payloads[0], self.now)
            else:
                self.core.sender.push_many(kind, payloads, self.now)
        except WaitTimeout:
            pass
        return session.acknowledged + session.pending - before

    def together(self, *records: tuple[int, bytes]) -> None:
        """Send records in one frame."""
        self.link.budget = 0
        for kind, payload in records:
            if kind < RecordKind.OPEN:
                self.core.sender.push(kind, payload, self.now)
            else:
                self.core.sender.push_unsequenced(kind, payload)
        self.link.budget = math.inf
        self.core.sender.flush()

    def frame(self) -> bytes | None:
        """Return the oldest frame that was sent and not taken yet, if there is one."""
        return self.link.frames.popleft() if self.link.frames else None

    def receive(self, frame: bytes, now: float) -> Any:
        """Process a frame of the peer; return the peer's CLOSE."""
        self.now = now
        return self.core.receive(self.link, memoryview(frame), now)  # type: ignore[arg-type]

    def tick(self, now: float, *, connected: bool = True) -> float | None:
        """Do what is due at ``now``; return how long the link was silent, if that ends it."""
        self.now, self.link.connected = now, connected
        return self.core.tick(now)

    def new(self) -> list[tuple[int, Any]]:
        """Return what was taken since the last call."""
        taken, self.taken = self.taken, []
        return taken

    def _count_request(self, _: Callable[[], None]) -> None:
        self.flush_requests += 1

    def _take_confirmation(self, number: int, error: AeronSparkError | None = None) -> bool:
        if error is None:
            self._take(RecordKind.DELIVERED, encode_number(number))
        return self._confirm(number, error)

    def _take(self, kind: int, payload: Buffer) -> None:
        self.taken.append((kind, bytes(payload)))

    def _take_messages(self, records: Sequence[Record]) -> None:
        self.taken.append((RecordKind.MESSAGE, [(kind, bytes(payload)) for kind, _, payload in records]))

    def _take_requests(self, requests: Sequence[tuple[int, Buffer]]) -> None:
        for kind, payload in requests:
            self._take(kind, payload)


def transmit(sender: End, receiver: End, now: float = 0.0) -> list[tuple[int, Any]]:
    """Move one frame, and fail if there is none; return what the receiver took."""
    frame = sender.frame()
    assert frame is not None
    receiver.new()
    receiver.receive(frame, now)
    return receiver.new()


def exchange(one: End, other: End, now: float) -> None:
    """Let two ends receive all frames of each other."""
    while one.link.frames or other.link.frames:
        for sender, receiver in ((one, other), (other, one)):
            if sender.link.frames:
                transmit(sender, receiver, now)
