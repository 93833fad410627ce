"""The client's side of the secure endpoint's channels: the handshake pair, and the duologue the server named."""

from __future__ import annotations

import secrets

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.inbox import A_CLIENTS, AeronInbox
from aeron_spark.aeron.outgoing import AeronOutgoing
from aeron_spark.transport import wiring
from aeron_spark.transport.port import (
    BULK_MESSAGE_BYTES,
    HANDSHAKE_MAX_BYTES,
    HANDSHAKE_STREAM_ID,
    DuologueIds,
    Pair,
    Place,
    Wishes,
)
from aeron_spark.transport.wiring import ClientPorts


class AeronDialing:
    """Implements ``transport.port.Dialing`` for the server at ``place``, with ``ports`` of its own or the system's."""

    def __init__(
        self,
        client: Client,
        place: Place,
        *,
        wishes: Wishes | None = None,
        ports: ClientPorts | None = None,
        idle: str = "backoff",
        max_message: int = BULK_MESSAGE_BYTES,
    ) -> None:
        self.client = client
        self.place = wiring.check_place(place, own=False)
        self.inbox = AeronInbox(client, idle=idle, max_message=max_message, beside=A_CLIENTS)
        self._wishes = Wishes() if wishes is None else wishes
        self._ports = ports
        self._outgoing: set[AeronOutgoing] = set()

    def knock(self) -> Pair:
        """Open the handshake pair, with a session id never used before."""
        channel = wiring.response_in(self.place, self._ports, self._wishes)
        token = self.inbox.add(channel, wiring.answers_stream(self.place), HANDSHAKE_MAX_BYTES, whole_only=True)
        return Pair(token, self._knocking(token))

    def knock_again(self, pair: Pair) -> Pair:
        """Open a new way out beside the same way in."""
        return Pair(pair.token, self._knocking(pair.token))

    def open_duologue(self, ids: DuologueIds, wishes: Wishes) -> Pair:
        """Open both ways of a duologue. The handshake pair stays open until its image has joined."""
        incoming = wiring.dialed_in(self.place, self._ports, ids, wishes)
        # Over IPC the driver itself brings the two together: there is nobody to ask.
        asking = self.place.media == "udp"
        token = self.inbox.add(incoming, ids.stream_out, wishes.max_message, whole_only=False, ask_again=asking)
        try:
            subscription = int(self.inbox.java.registrationId(token))
            channel = wiring.dialed_out(self.place, self._ports, ids, wishes, subscription)
            outgoing = self._publish(channel, ids.stream_in, ids.session_in)
        except BaseException:
            self.inbox.close_way(token)
            raise
        return Pair(token, outgoing.await_rejection(token))

    def close(self) -> None:
        """Close the inbox and every way out."""
        for outgoing in list(self._outgoing):
            outgoing.close()
        self._outgoing.clear()
        self.inbox.close()

    def _knocking(self, token: int) -> AeronOutgoing:
        # Random, and never twice: a session that was rejected is remembered by the server's driver for some time.
        session_id = secrets.randbelow(2**31 - 1) + 1
        subscription = int(self.inbox.java.registrationId(token))
        channel = wiring.handshake_out(self.place, self._ports, subscription, session_id, self._wishes)
        return self._publish(channel, HANDSHAKE_STREAM_ID, session_id).await_rejection(token)

    def _publish(self, channel: str, stream_id: int, session_id: int) -> AeronOutgoing:
        for gone in [one for one in self._outgoing if one.closed]:
            self._outgoing.discard(gone)
        outgoing = AeronOutgoing(self.inbox, channel, stream_id, session_id)
        self._outgoing.add(outgoing)
        return outgoing
