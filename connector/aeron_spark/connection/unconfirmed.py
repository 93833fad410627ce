"""The messages that a session had accepted when it ended, and that the peer had not confirmed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from aeron_spark.errors import DataFormatError
from aeron_spark.protocol.frames import OutgoingRecord, RecordKind
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.transfers import FINISHED, TransferStart


@dataclass(frozen=True, slots=True)
class UnconfirmedTransfer:
    """A file, or a message of more than one record, that was sent completely and not confirmed.

    ``name`` is that of the file, and empty for a message. ``size`` is in bytes.
    """

    name: str
    size: int


def messages_of(
    records: Iterable[OutgoingRecord], types: Types, transfers: Mapping[int, TransferStart]
) -> Iterator[object]:
    """Yield the messages and files of unacknowledged records, in the order in which they were sent.

    ``transfers`` are those that were sent completely. A message with a remote object is yielded as its encoded bytes.
    Calls are not messages, and a message with ``acknowledge`` raises in its own call of ``send``.
    """
    for kind, _, payload in records:
        if kind == RecordKind.MESSAGE:
            try:
                yield types.decode(payload)
            except DataFormatError:  # the objects of the session have ended with it
                yield bytes(payload)
        elif kind == RecordKind.TRANSFER_FINISHED:
            start = transfers.get(FINISHED.unpack(payload)[0])
            if start is not None:
                yield UnconfirmedTransfer(start.name, start.total)
