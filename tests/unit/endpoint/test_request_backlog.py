"""Tests of waiting requests: the event loop begins a few of a connection in a turn, and workers take the others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.endpoint.peer_calls import TURN_REQUESTS, TURN_S, RequestBacklog

CALL = 1


def test_the_event_loop_begins_some_requests_of_a_turn_and_a_worker_takes_the_others() -> None:
    backlog = RequestBacklog()
    for _ in range(TURN_REQUESTS // 2):
        assert backlog.add([(CALL, b"x")] * 2, 0.0)
    assert (len(backlog), backlog.bytes) == (0, 0)
    assert not backlog.add([(CALL, b"first"), (CALL, b"second")], 0.0)
    assert backlog.take_worker()
    assert not backlog.add([(CALL, b"third")], TURN_S)  # also in a later turn: it follows the others
    assert not backlog.take_worker()
    assert (len(backlog), backlog.bytes) == (3, 16)
    assert [backlog.next() for _ in range(3)] == [(CALL, b"first"), (CALL, b"second"), (CALL, b"third")]
    assert not backlog.add([(CALL, b"fourth")], 3 * TURN_S)  # the worker has not noticed yet that none waits
    assert not backlog.take_worker()
    assert [backlog.next() for _ in range(2)] == [(CALL, b"fourth"), None]
    assert backlog.add([(CALL, b"fifth")], 3 * TURN_S)


def test_a_cleared_backlog_is_empty_and_its_worker_ends() -> None:
    backlog = RequestBacklog()
    assert not backlog.add([(CALL, b"x")] * (TURN_REQUESTS + 1), 0.0)
    assert backlog.take_worker()
    backlog.clear()
    assert (len(backlog), backlog.bytes, backlog.next()) == (0, 0, None)
    assert backlog.add([(CALL, b"x")], 2 * TURN_S)


@given(st.lists(st.tuples(st.integers(0, 3 * TURN_REQUESTS), st.floats(0, 2 * TURN_S)), max_size=100))
def test_requests_begin_in_their_order_and_each_once(steps: list[tuple[int, float]]) -> None:
    backlog, now, added, has_worker = RequestBacklog(), 0.0, 0, False
    begun: list[int] = []
    for count, pause in steps:
        now += pause
        requests = [(number, b"x") for number in range(added, added + count)]
        added += count
        if backlog.add(requests, now):
            assert not has_worker
            begun += [number for number, _ in requests]
        elif backlog.take_worker():
            assert not has_worker
            has_worker = True
        for _ in range(TURN_REQUESTS if has_worker else 0):
            request = backlog.next()
            if request is None:
                has_worker = False
                break
            begun.append(request[0])
    while has_worker and (request := backlog.next()) is not None:
        begun.append(request[0])
    assert begun == list(range(added))
