"""Parsing the output of Aeron's sample subscriber."""

from __future__ import annotations

from demo.flights import Day
from demo.subscriber import latest_days, messages

PRINTED = """\
Subscribing to aeron:ipc on stream id 1002
Available image on aeron:ipc streamId=1002 sessionId=-42 from aeron:ipc
Message to stream 1002 from session -42 (57@32) <<{"day":"2013-01-01","flights":2,"departed":1,"delay":3.0}>>
Message to stream 1002 from session 7 (57@32) <<{"day":"2013-01-01","flights":9,"departed":8,"delay":-1.5}>>
Message to stream 1002 from session -42 (57@96) <<{"day":"2013-01-01","flights":2,"departed":1,"delay":3.0}>>
Message to stream 1002 from session -42 (57@128) <<{"day":"2013-01-02","flights":1,"departed":0,"delay":0.0}>>
Unavailable image on aeron:ipc streamId=1002 sessionId=-42"""


def test_messages_are_separated_from_other_output() -> None:
    assert len(messages(PRINTED.splitlines())) == 4


def test_the_newest_result_of_a_day_is_used_in_any_order() -> None:
    days = latest_days(messages(PRINTED.splitlines()))
    assert days == {"2013-01-01": Day(9, 8, -1.5), "2013-01-02": Day(1, 0, 0.0)}
