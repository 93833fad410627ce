"""The transport of a client that has not opened one yet: its inbox can wait, and nothing can be opened."""

from __future__ import annotations

import threading
from typing import NoReturn

from aeron_spark.errors import TransportError
from aeron_spark.transport.api import ChannelPair, ChannelSettings, LinkIds, TransportEvent


class UnopenedInbox:
    """Implements ``Inbox`` without subscriptions."""

    dropped = 0
    closed = lost = False

    def __init__(self) -> None:
        self._woken = threading.Event()

    def poll(self, timeout: float) -> list[TransportEvent]:
        """Wait up to ``timeout`` seconds for :meth:`wake`."""
        if self._woken.wait(timeout):
            self._woken.clear()
        return []

    def wake(self) -> None:
        """End the current poll, or the next one, immediately."""
        self._woken.set()

    def pause(self, token: int) -> None:
        """Do nothing: no subscription exists."""

    resume = close_subscription = pause

    def reject(self, image: int, reason: str) -> None:
        """Do nothing: no image exists."""

    def ready(self, token: int) -> bool:
        """Return False: no subscription exists."""
        return False

    def local_address(self, token: int) -> str:
        """Return an empty text: no subscription exists."""
        return ""

    def close(self) -> None:
        """Do nothing: no subscription exists."""


class UnopenedTransport:
    """Implements ``ClientTransport`` until the client has opened a transport."""

    is_ipc = False

    def __init__(self) -> None:
        self.inbox = UnopenedInbox()

    def open_path(self) -> ChannelPair:
        """Raise TransportError."""
        self._refuse()

    def reopen_path(self, pair: ChannelPair) -> ChannelPair:
        """Raise TransportError."""
        self._refuse()

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        """Raise TransportError."""
        self._refuse()

    def close(self) -> None:
        """Do nothing: nothing is open."""

    @staticmethod
    def _refuse() -> NoReturn:
        raise TransportError("the transport is not open yet", remedy="Wait for the connection.")
