"""Paths and links: the publications and subscriptions of a handshake and of a session, with what waits to be sent."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import Final

from aeron_spark.errors import AeronSparkError, DataFormatError, TransportError
from aeron_spark.protocol.frame_cipher import OVERHEAD_BYTES, FrameDecryptor, FrameEncryptor
from aeron_spark.protocol.frames import FRAME_HEAD, RECORD_HEAD, Buffer, RecordKind, decode, encode
from aeron_spark.protocol.liveness import Expiry, KeepAlive, Times
from aeron_spark.transport.api import SEE_DRIVER, ChannelPair, ClientTransport, OfferResult, Publication

OPEN: Final = struct.Struct(
    ">"
    "Q"  # number of our records that the peer has received
    "I"  # bytes of the longest message that it takes
)
MIN_MESSAGE_BYTES: Final = 1024  # least size that a peer must take
OFFER_TIMEOUT_S: Final = 0.001  # a sending thread waits so long for room; then the event loop repeats the offer
LOOK_SHARE: Final = 8
"""A path that its client has not connected yet is looked at again after this part of its age. A hundred clients that
never connect theirs would otherwise take a millisecond of each turn of the event loop."""


class Path:
    """The publication of one handshake's packets, with those that Aeron has not taken yet. For the event loop."""

    def __init__(self, publication: Publication) -> None:
        self.publication = publication
        self.is_ready = False
        """Whether the owner has noticed that the publication was connected."""
        self._unsent: deque[bytes] = deque()

    @property
    def is_drained(self) -> bool:
        """Whether Aeron has taken all packets."""
        return not self._unsent

    def send(self, packet: bytes) -> None:
        """Send a packet now, or when Aeron takes it. The publication may not be connected yet."""
        self._unsent.append(packet)
        self.flush()

    def flush(self) -> bool:
        """Offer the unsent packets until Aeron does not take one; return whether one waits for room.

        No event reports the room, but one reports that the publication is connected.
        """
        while self._unsent and self.publication.connected:
            try:
                if self.publication.offer(self._unsent[0]) is not None:
                    break
            except AeronSparkError:  # too long for this publication: the step's deadline ends the handshake
                pass
            self._unsent.popleft()
        return bool(self._unsent) and self.publication.connected

    def close(self) -> None:
        """Close the publication, and drop its unsent packets."""
        self._unsent.clear()
        self.publication.close()


class ClientPath(Path):
    """A client's path: also the subscription of the server's packets, and the publication that comes next.

    A server rejects the publication of the first HELLO with a cookie. The next HELLO needs a publication with another
    Aeron session id, which the client opens in advance to save time.
    """

    def __init__(self, transport: ClientTransport) -> None:
        """Open the path. Raises AeronSparkError."""
        try:
            self._pair: Final = transport.open_path()
        except Exception as error:
            raise to_package_error(error) from error
        super().__init__(self._pair.publication)
        self.expects_retry: Final = not transport.is_ipc
        """Whether the server answers the first HELLO with a cookie, as servers do over the network."""
        self._transport: Final = transport
        self._next: Publication | None = None

    @property
    def token(self) -> int:
        """The token of the subscription."""
        return self._pair.token

    @property
    def publications(self) -> tuple[Publication, ...]:
        """The open publications; the handshake's packets are sent on the first one."""
        return (self.publication,) if self._next is None else (self.publication, self._next)

    def open_next(self) -> None:
        """Open the next publication in advance; if that fails, :meth:`replace_publication` opens it."""
        try:
            self._next = self._open_publication()
        except AeronSparkError:
            self._next = None

    def replace_publication(self) -> None:
        """Send all further packets on the next publication. Raises AeronSparkError if it cannot be opened."""
        opened = self._next or self._open_publication()
        super().close()
        self.publication, self._next = opened, None

    def is_rejected(self, session_id: int) -> bool:
        """Whether the publication with this Aeron session id, which was rejected, sends the handshake's packets.

        The next publication is closed: it timed out at the server before the cookie arrived.
        """
        if self._next is not None and self._next.session_id == session_id:
            self._close_next()
        return self.publication.session_id == session_id

    def flush(self) -> bool:
        """Send the unsent packets, and close the next publication if the media driver could not open it."""
        if self._next is not None and self._next.failure:
            self._close_next()
        return super().flush()

    def close(self) -> None:
        """Close the publications and the subscription."""
        self._close_next()
        super().close()
        self._transport.inbox.close_subscription(self.token)

    def _close_next(self) -> None:
        closed, self._next = self._next, None
        if closed is not None:
            closed.close()

    def _open_publication(self) -> Publication:
        try:
            return self._transport.reopen_path(self._pair).publication
        except Exception as error:
            raise to_package_error(error) from error


class ServerPath(Path):
    """A server's path. Its client may never connect it: the server looks at it ever less often."""

    def __init__(self, publication: Publication, now: float) -> None:
        super().__init__(publication)
        self._opened_at: Final = now
        self._look_at = now

    def look(self, now: float) -> bool:
        """Look at the publication if that is due; return whether it is connected or has failed."""
        if now < self._look_at:
            return False
        self._look_at = now + (now - self._opened_at) / LOOK_SHARE
        self.is_ready = self.publication.connected
        return self.is_ready or self.publication.closed


def to_package_error(error: Exception) -> AeronSparkError:
    """Return an error of a transport as one of this package."""
    return error if isinstance(error, AeronSparkError) else TransportError(str(error), remedy=SEE_DRIVER)


class Link:
    """A publication and a subscription that carry a session, with the encryption of their frames.

    A connection that resumes gets another link.

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
        # for a link that opens, and for a bulk link; a connection watches the link that carries it
        self.expiry = Expiry(times.setup_seconds, times.expiry_seconds, now)
        self.keep_alive = KeepAlive(times.keep_alive_seconds, now)
        self.image: int | None = None
        self.is_verified = False
        """Whether the peer's first frame was decrypted: it has the keys."""
        self.has_offered_open = False
        """Whether OPEN, the first frame of this end, waits for Aeron or was taken."""
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

    def work_opening(self, received: int, now: float) -> bool:
        """Send OPEN when the link is connected, or offer it again; return whether it waits for room.

        Not before the subscription has its image: to repeat the set-up, it may be opened again, and would then lose
        frames that the peer had sent.
        """
        if self.has_offered_open:
            self.retry(now)
        elif self.connected:
            self.send_open(received, now)
        return self.is_blocked

    def prepare_open(self, received: int) -> None:
        """Make OPEN the frame that waits for :meth:`retry`, so that no other frame is sent before it."""
        self.has_offered_open = True
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
