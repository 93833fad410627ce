"""Tests the events of a server's streams: recoveries, damage, slow commits."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from aeron_spark.errors import DataLossError, TransportError
from aeron_spark.server.events import ServerEvents
from aeron_spark.server.stream_events import StreamEvents, StreamObservers
from aeron_spark.streams.observer import CommittedTransaction, StreamObserver, StreamRecovery

Events = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def seen() -> Events:
    return []


@pytest.fixture
def observer(seen: Events) -> StreamEvents:
    events = ServerEvents()

    def observe(name: str, fields: Mapping[str, Any]) -> None:
        seen.append((name, dict(fields)))

    events.observe(observe)
    return StreamEvents(events)


def committed(seconds: float) -> CommittedTransaction:
    return CommittedTransaction("prices", "desk-7", 3, 10, 4096, 0.1, 0.2, seconds - 0.4, 0.1)


def test_a_recovery_names_what_was_cut_from_the_journal_and_each_partition(
    observer: StreamEvents, seen: Events, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aeron_spark.server")
    observer.recovered(StreamRecovery("prices", 4, 17, {3: (81_920, 65_536)}, None, 0.25))
    (event,) = seen
    assert event == (
        "recovered",
        {
            "stream": "prices", "partitions": 4, "seconds": 0.25, "cut_bytes": 17 + 16_384,
            "cut": ("the end of the journal", "partition 3: 65536 to 81920"),
        },
    )  # fmt: skip
    assert caplog.records[0].levelname == "WARNING"


def test_a_recovery_without_a_cut_is_information(
    observer: StreamEvents, seen: Events, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aeron_spark.server")
    observer.recovered(StreamRecovery("prices", 4, 0, {}, None, 0.25))
    assert seen[0][1]["cut_bytes"] == 0
    assert caplog.records[0].levelname == "INFO"


def test_a_stream_that_was_restored_and_not_changed_since_is_reported_with_the_time_of_its_backup(
    observer: StreamEvents, seen: Events
) -> None:
    observer.recovered(StreamRecovery("prices", 4, 0, {}, None, 0.25, 1_800_000_000 * 10**9))
    assert seen[1] == ("restored", {"stream": "prices", "copied_at": "2027-01-15T08:00:00Z"})


def test_a_damaged_stream_is_named_with_its_remedy(observer: StreamEvents, seen: Events) -> None:
    damage = DataLossError("the journal of 'prices' is damaged", remedy="Restore it.")
    observer.not_opened("prices", damage)
    observer.recovered(StreamRecovery("trades", 1, 0, {}, damage, 0.1))
    assert [name for name, _ in seen] == ["stream_damaged", "recovered", "stream_damaged"]
    assert seen[0][1] == {"stream": "prices", "error": damage.what, "remedy": "Restore it."}
    assert seen[2][1]["stream"] == "trades"


def test_each_of_many_damaged_streams_has_a_line(observer: StreamEvents, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aeron_spark.server")
    for number in range(200):
        observer.not_opened(f"stream-{number}", DataLossError("damaged"))
    assert len(caplog.records) == 200


def test_a_stream_that_is_opened_again_later_is_not_called_damaged(observer: StreamEvents, seen: Events) -> None:
    observer.not_opened("prices", TransportError("the archive did not respond", remedy="Wait."))
    assert [name for name, _ in seen] == ["error"]


def test_a_slow_commit_is_reported_with_its_phases(observer: StreamEvents, seen: Events) -> None:
    observer.committed(committed(0.99))
    assert seen == []
    observer.committed(committed(1.5))
    name, fields = seen[0]
    assert name == "commit_slow"
    assert fields["seconds"] == pytest.approx(1.5)
    phases = [fields[phase] for phase in ("stage_s", "publish_s", "record_s", "journal_s")]
    assert sum(phases) == pytest.approx(fields["seconds"])


def test_a_stopped_recording_names_stream_partition_and_recording(observer: StreamEvents, seen: Events) -> None:
    observer.recording_stopped("prices", 3, 17, TransportError("recording 17 stopped"))
    assert seen == [
        ("recording_stopped", {"stream": "prices", "partition": 3, "recording": 17, "error": "recording 17 stopped"})
    ]


def test_all_observers_learn_each_fact(observer: StreamEvents) -> None:
    calls: list[str] = []

    class Recorder(StreamObserver):
        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("_"):
                calls.append(name)
            return super().__getattribute__(name)

    both = StreamObservers(Recorder(), Recorder())
    damage = DataLossError("x")
    both.recovered(StreamRecovery("s", 1, 0, {}, None, 0.0))
    both.not_opened("s", damage)
    both.read_only("s", damage)
    both.recording_stopped("s", 0, 7, damage)
    both.committed(committed(2))
    both.aborted("s")
    both.fenced("s", "w")
    both.schema_changed("s", "w")
    both.trimmed("s", 1)
    both.delete_pending("s", "why")
    both.lease_overridden("s", ["r"])
    facts = [name for name in vars(StreamObserver) if not name.startswith("_")]
    assert calls == [name for name in facts for _ in range(2)]
