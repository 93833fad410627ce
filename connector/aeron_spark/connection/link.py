"""One duologue: an authenticated way to the peer and one back, each frame encrypted, until one of them is gone."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from aeron_spark.errors import DataFormatError
from aeron_spark.protocol.frame_cipher import OVERHEAD_BYTES, FrameDecryptor, FrameEncryptor
from aeron_spark.protocol.frames import FRAME_HEAD, RECORD_HEAD, Buffer, RecordKind, decode, encode
from aeron_spark.protocol.liveness import Expiry, KeepAlive, Times
from aeron_spark.transport.api import ChannelPair, OfferResult

OPEN: Final = struct.Struct(
    ">"
    "Q"  # how many of our records the peer has
    "I"  # bytes of the longest message it takes
)
LEAST_MESSAGE: Final = 1024
OFFER_TIMEOUT_S: Final = 0.001  # seconds a sender waits for room by itself before the agent takes over


class LinkEnds:
    """The transport half of a connection. A connection that is resumed gets another one.

    Sending is for one thread at a time, receiving for the polling thread.
    """

    def __init__(
        self,
        pair: ChannelPair,
        encryptor: FrameEncryptor,
        decryptor: FrameDecryptor,
        times: Times,
        most: int,
        now: float,
        owner: str = "",
    ) -> None:
        self.pair = pair
        self.owner = owner  # the only IP address its image may come from; empty: any
        self.decryptor = decryptor
        # of a link that is being set up, and of a bulk link; a connection's machine watches the link that carries it
        self.expiry = Expiry(times.setup_seconds, times.expiry_seconds, now)
        self.keep_alive = KeepAlive(times.keep_alive_seconds, now)
        self.image: int | None = None
        self.proved = False  # a frame of the peer was decrypted: it has the keys
        self.last_result: OfferResult | None = None
        self._encryptor = encryptor
        self._takes = self._most = most  # bytes of a message: what this side takes, and what both do
        self._frame: memoryview | None = None  # encrypted, and not taken yet: the next in line, whatever comes

    @property
    def token(self) -> int:
        """The way in."""
        return self.pair.token

    @property
    def connected(self) -> bool:
        """Whether Aeron says that both ways are there."""
        return self.image is not None and self.pair.publication.connected

    @property
    def room(self) -> int:
        """Bytes of plaintext that one frame takes."""
        return min(self.pair.publication.max_message or self._most, self._most) - OVERHEAD_BYTES

    @property
    def blocked(self) -> bool:
        """Whether a frame waits to be taken."""
        return self._frame is not None

    @property
    def max_record_bytes(self) -> int:
        """Bytes of the longest record that a frame takes."""
        return self.room - FRAME_HEAD.size - RECORD_HEAD.size

    def send(self, plaintext: Sequence[Buffer], now: float, patience: float = 0.0) -> bool:
        """Encrypt and offer a frame; whether it was taken. One that was not waits, and comes before any other."""
        self._frame = self._encryptor.encrypt(plaintext[0], plaintext[1:])
        return self.retry(now, patience)

    def retry(self, now: float, patience: float = 0.0) -> bool:
        """Offer again what waits; whether nothing waits any more."""
        if self._frame is None:
            return True
        self.last_result = self.pair.publication.offer(self._frame, timeout_s=patience)
        if self.last_result is not None:
            return False
        self._frame = None
        self.keep_alive.sent(now)
        return True

    def say_open(self, received: int, now: float) -> bool:
        """Send the frame that begins the duologue and proves our keys; whether it was taken."""
        record = (RecordKind.OPEN, 0, OPEN.pack(received, self._takes))
        return self.send(encode(0, 0, [record]), now)

    def first(self, payload: memoryview) -> int:
        """Decrypt the peer's first frame, and return how many of our records it has.

        Raises TamperedError or DataFormatError for anything but an OPEN under the right key.
        """
        records = decode(self.decryptor.decrypt(payload)).records
        match records:
            case [(RecordKind.OPEN, _, data)] if len(data) == OPEN.size:
                received, takes = OPEN.unpack(data)
                if takes >= LEAST_MESSAGE:
                    self._most = min(self._most, takes)
                    return int(received)
        raise DataFormatError(
            "a duologue does not begin with OPEN alone", remedy="Use the same release of aeron-spark at both ends"
        )

    def close(self) -> None:
        """Close the way out; the way in is the inbox's."""
        self.pair.publication.close()
