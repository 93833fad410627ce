"""The transport half of a link: a publication and a subscription, with the encryption of their frames."""

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
    "Q"  # number of our records that the peer has received
    "I"  # bytes of the longest message that it takes
)
MIN_MESSAGE_BYTES: Final = 1024  # least size that a peer must take
OFFER_TIMEOUT_S: Final = 0.001  # a sending thread waits so long for room; then the event loop repeats the offer


class LinkEnds:
    """The transport half of a link. A connection that resumes gets another link.

    One thread at a time may send; the event loop receives. ``source_address`` is the only IP address from which the
    link's image may come; empty: any. ``open_bytes``: OPEN is filled up with zeros to this number of bytes, so that its
    arrival proves that the network carries such a message; 0: it is not.
    """

    def __init__(
        self,
        pair: ChannelPair,
        encryptor: FrameEncryptor,
        decryptor: FrameDecryptor,
        times: Times,
        max_message: int,
        now: float,
        source_address: str = "",
        open_bytes: int = 0,
    ) -> None:
        self.pair = pair
        self.source_address = source_address
        self.decryptor = decryptor
        # for a link that opens, and for a bulk link; a connection's machine watches the link that carries it
        self.expiry = Expiry(times.setup_seconds, times.expiry_seconds, now)
        self.keep_alive = KeepAlive(times.keep_alive_seconds, now)
        self.image: int | None = None
        self.is_verified = False
        """Whether the peer's first frame was decrypted: it has the keys."""
        self.last_result: OfferResult | None = None
        self.received_bytes = 0
        """Bytes of the frames that were decrypted. Counted by the event loop."""
        self.sent_bytes = 0
        """Bytes of the frames that Aeron took. Counted by the thread that sends."""
        self._encryptor = encryptor
        self._open_bytes = open_bytes
        self._own_max_message = self._max_message = max_message  # of this end, and of both ends
        self._unsent_frame: memoryview | None = None  # encrypted, and not taken by Aeron: it precedes any other frame

    @property
    def token(self) -> int:
        """The token of the subscription."""
        return self.pair.token

    @property
    def connected(self) -> bool:
        """Whether the subscription has its image and the publication its subscriber."""
        return self.image is not None and self.pair.publication.connected

    @property
    def room(self) -> int:
        """Bytes of plaintext that one frame takes."""
        return min(self.pair.publication.max_message or self._max_message, self._max_message) - OVERHEAD_BYTES

    @property
    def is_blocked(self) -> bool:
        """Whether a frame waits for Aeron to take it."""
        return self._unsent_frame is not None

    @property
    def max_record_bytes(self) -> int:
        """Bytes of the longest record that a frame takes."""
        return self.room - FRAME_HEAD.size - RECORD_HEAD.size

    def send(self, plaintext: Sequence[Buffer], now: float, timeout_s: float = 0.0) -> bool:
        """Encrypt and offer a frame; return whether Aeron took it. A frame that it did not take waits for ``retry``."""
        self._prepare(plaintext)
        return self.retry(now, timeout_s)

    def retry(self, now: float, timeout_s: float = 0.0) -> bool:
        """Offer the waiting frame again, for up to ``timeout_s``; return whether no frame waits any more."""
        if self._unsent_frame is None:
            return True
        self.last_result = self.pair.publication.offer(self._unsent_frame, timeout_s=timeout_s)
        if self.last_result is not None:
            return False
        self.sent_bytes += self._unsent_frame.nbytes
        self._unsent_frame = None
        self.keep_alive.sent(now)
        return True

    def send_open(self, received: int, now: float) -> bool:
        """Send OPEN, the first frame, which proves that we have the keys; return whether Aeron took it."""
        self.prepare_open(received)
        return self.retry(now)

    def prepare_open(self, received: int) -> None:
        """Make OPEN the frame that waits for :meth:`retry`, so that no other frame is sent before it."""
        content = OPEN.pack(received, self._own_max_message)
        filled = self._open_bytes - OVERHEAD_BYTES - FRAME_HEAD.size - RECORD_HEAD.size
        self._prepare(encode(0, 0, [(RecordKind.OPEN, 0, content.ljust(filled, bytes(1)))]))

    def decrypt(self, payload: memoryview) -> memoryview:
        """Return the plaintext of the peer's next frame. Raises TamperedError for anything else."""
        plaintext = self.decryptor.decrypt(payload)
        self.received_bytes += payload.nbytes
        return plaintext

    def verify(self, payload: memoryview) -> int:
        """Decrypt the peer's first frame, and return how many of our records it has received.

        Raises TamperedError or DataFormatError for anything but an OPEN that was encrypted with the link's key.
        """
        records = decode(self.decrypt(payload)).records
        match records:
            case [(RecordKind.OPEN, _, data)] if len(data) == OPEN.size or (self._open_bytes and len(data) > OPEN.size):
                received, peer_max_message = OPEN.unpack_from(data)
                if peer_max_message >= MIN_MESSAGE_BYTES:
                    self._max_message = min(self._max_message, peer_max_message)
                    self.is_verified = True
                    return int(received)
        raise DataFormatError(
            "the first frame of a link is not OPEN alone", remedy="Use the same release of aeron-spark at both ends."
        )

    def stop_waiting(self) -> None:
        """Let a thread that waits in an offer return now. From any thread."""
        self.pair.publication.stop_waiting()

    def close(self) -> None:
        """Close the publication. The inbox closes the subscription."""
        self.pair.publication.close()

    def _prepare(self, plaintext: Sequence[Buffer]) -> None:
        self._unsent_frame = self._encryptor.encrypt(plaintext[0], plaintext[1:])
