"""What Aeron's ``offer`` answers when it did not take a message: back-pressure is a value, not an exception."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class OfferResult(IntEnum):
    """The negative results of ``Publication.offer``; a result of 0 or more is the new stream position instead."""

    NOT_CONNECTED = -1
    BACK_PRESSURED = -2
    ADMIN_ACTION = -3
    CLOSED = -4
    MAX_POSITION_EXCEEDED = -5

    @property
    def sentence(self) -> str:
        """What the result means, as a sentence for an error or a log."""
        return _SENTENCES[self]

    @property
    def transient(self) -> bool:
        """Whether offering the same message again, on the same publication, can succeed."""
        return self in _TRANSIENT


_TRANSIENT: Final = frozenset({OfferResult.NOT_CONNECTED, OfferResult.BACK_PRESSURED, OfferResult.ADMIN_ACTION})

_SENTENCES: Final[dict[OfferResult, str]] = {
    OfferResult.NOT_CONNECTED: "no subscriber is connected to the publication",
    OfferResult.BACK_PRESSURED: "a subscriber is slower than the publisher, so its flow-control window is full",
    OfferResult.ADMIN_ACTION: "the publication is rotating to its next term; offering again at once succeeds",
    OfferResult.CLOSED: "the publication is closed, or its client has lost its media driver",
    OfferResult.MAX_POSITION_EXCEEDED: "the publication has used up its positions (term length times 2^31 bytes)"
    " and must be replaced by a new one",
}
