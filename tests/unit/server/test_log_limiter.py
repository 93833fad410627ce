"""Tests the limits on log lines with simulated time."""

from __future__ import annotations

from aeron_spark.server.log_output import BURST, MAX_SUBJECTS, PEERS_PER_S, TOTAL_PER_S, LogLimiter


def admitted(limiter: LogLimiter, subject: object, times: list[float], *, event: str = "refused") -> int:
    return sum(limiter.admit(event, subject, time, is_caused_by_peer=True) for time in times)


def test_an_event_about_one_address_has_five_lines_at_once() -> None:
    limiter = LogLimiter(0.0)
    assert admitted(limiter, "10.0.0.7", [0.0] * 20) == BURST
    assert limiter.take_suppressed() == {"refused": 15}
    assert limiter.take_suppressed() == {}
    assert limiter.suppressed_total == 15


def test_after_the_burst_an_event_has_one_line_in_ten_seconds() -> None:
    limiter = LogLimiter(0.0)
    admitted(limiter, "10.0.0.7", [0.0] * BURST)
    assert admitted(limiter, "10.0.0.7", [9.9]) == 0
    assert admitted(limiter, "10.0.0.7", [10.0]) == 1
    assert admitted(limiter, "10.0.0.7", [float(second) for second in range(20, 620)]) == 60


def test_another_address_and_another_event_have_their_own_lines() -> None:
    limiter = LogLimiter(0.0)
    admitted(limiter, "10.0.0.7", [0.0] * 20)
    assert admitted(limiter, "10.0.0.8", [0.0]) == 1
    assert admitted(limiter, "10.0.0.7", [0.0], event="tampered") == 1


def test_many_addresses_together_cannot_exceed_the_lines_a_second() -> None:
    limiter = LogLimiter(0.0)
    lines = sum(admitted(limiter, number, [number / 1000]) for number in range(10_000))
    assert lines <= PEERS_PER_S * 11


def test_a_flood_by_clients_leaves_lines_for_the_server_itself() -> None:
    limiter = LogLimiter(0.0)
    for number in range(10_000):
        admitted(limiter, number, [0.0])
    own = sum(limiter.admit("disk_low", number, 0.0, is_caused_by_peer=False) for number in range(100))
    assert own == TOTAL_PER_S - PEERS_PER_S


def test_the_number_of_remembered_subjects_is_bounded() -> None:
    limiter = LogLimiter(0.0)
    for number in range(3 * MAX_SUBJECTS):
        admitted(limiter, number, [0.0])
    assert len(limiter) == MAX_SUBJECTS


def test_a_clock_that_goes_back_gives_no_lines() -> None:
    limiter = LogLimiter(100.0)
    admitted(limiter, "10.0.0.7", [100.0] * BURST)
    assert admitted(limiter, "10.0.0.7", [0.0, 50.0, 100.0]) == 0
