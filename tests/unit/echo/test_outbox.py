"""The outbox: ordered, and limited in number and time."""

from __future__ import annotations

from aeron_spark.echo.conversation import MAX_REPLIES, Outbox
from tests.unit.echo.test_flood import Publication


def test_waiting_messages_are_sent_in_order() -> None:
    publication = Publication()
    outbox = Outbox(publication.offer, 10.0)
    for message in (b"1", b"2", b"3"):
        outbox.put(message, 0.0)
    assert (outbox.flush(0.0), outbox.is_empty) == (0, False)
    publication.room = 2
    assert (outbox.flush(1.0), outbox.is_empty) == (2, False)
    publication.room = 9
    assert (outbox.flush(9.9), outbox.is_empty, outbox.sent) == (1, True, 3)
    assert publication.accepted == [b"1", b"2", b"3"]


def test_a_message_that_waited_too_long_is_not_sent() -> None:
    publication = Publication()
    outbox = Outbox(publication.offer, 10.0)
    outbox.put(b"old", 0.0)
    outbox.put(b"new", 5.0)
    assert not outbox.is_overdue(9.9)
    assert outbox.is_overdue(10.0)
    publication.room = 9
    assert outbox.flush(10.0) == 0
    outbox.drop_overdue(10.0)
    assert outbox.flush(10.0) == 1
    assert publication.accepted == [b"new"]
    outbox.drop_overdue(99.0)
    assert not outbox.is_overdue(99.0)


def test_a_full_outbox_drops_its_oldest_message() -> None:
    publication = Publication()
    outbox = Outbox(publication.offer, 10.0)
    for number in range(MAX_REPLIES + 3):
        outbox.put(b"%d" % number, 0.0)
    publication.room = 2 * MAX_REPLIES
    assert outbox.flush(0.0) == MAX_REPLIES
    assert publication.accepted[0] == b"3"
