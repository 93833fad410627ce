"""Tests the events of a server's streams: recoveries, damage, slow commits."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from aeron_spark.errors import DataLossError, TransportError
from aeron_spark.facts import Bus
from aeron_spark.server.event_log import EventLog
from aeron_spark.server.events import ServerEvents
from aeron_spark.streams.model import CommittedTransaction, RecordingStopped, StreamNotOpened, StreamRecovery

Events = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def seen() -> Events:
    return []


@pytest.fixture
def facts(seen: Events) -> Bus:
    events = ServerEvents()

    def observe(name: str, fields: Mapping[str, Any]) -> None:
        seen.append((name, dict(fields)))

    events.observe(observe)
    facts = Bus()
    EventLog(events, facts)
    return facts


def committed(seconds: float) -> CommittedTransaction:
    return CommittedTransaction("prices", "desk-7", 3, 10, 4096, 0.1, 0.2, seconds - 0.4, 0.1)


def test_a_recovery_names_what_was_cut_from_the_journal_and_each_partition(
    facts: Bus, seen: Events, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aeron_spark.server")
    facts.emit(StreamRecovery("prices", 4, 17, {3: (81_920, 65_536)}, None, 0.25))
    (event,) = seen
    assert event == (
        "recovered",
        {
            "stream": "prices", "partitions": 4, "seconds": 0.25, "cut_bytes": 17 + 16_384,
            "cut": ("the end of the journal", "partition 3: 65536 to 81920"),
        },
    )  # fmt: skip
    assert caplog.records[0].levelname == "WARNING"


def test_a_recovery_without_a_cut_is_information(facts: Bus, seen: Events, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aeron_spark.server")
    facts.emit(StreamRecovery("prices", 4, 0, {}, None, 0.25))
    assert seen[0][1]["cut_bytes"] == 0
    assert caplog.records[0].levelname == "INFO"


def test_a_stream_that_was_restored_and_not_changed_since_is_reported_with_the_time_of_its_backup(
    facts: Bus, seen: Events
) -> None:
    facts.emit(StreamRecovery("prices", 4, 0, {}, None, 0.25, 1_800_000_000 * 10**9))
    assert seen[1] == ("restored", {"stream": "prices", "copied_at": "2027-01-15T08:00:00Z"})


def test_a_damaged_stream_is_named_with_its_remedy(facts: Bus, seen: Events) -> None:
    damage = DataLossError("the journal of 'prices' is damaged", remedy="Restore it.")
    facts.emit(StreamNotOpened("prices", damage))
    facts.emit(StreamRecovery("trades", 1, 0, {}, damage, 0.1))
    assert [name for name, _ in seen] == ["stream_damaged", "recovered", "stream_damaged"]
    assert seen[0][1] == {"stream": "prices", "error": damage.what, "remedy": "Restore it."}
    assert seen[2][1]["stream"] == "trades"


def test_each_of_many_damaged_streams_has_a_line(facts: Bus, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aeron_spark.server")
    for number in range(200):
        facts.emit(StreamNotOpened(f"stream-{number}", DataLossError("damaged")))
    assert len(caplog.records) == 200


def test_a_stream_that_is_opened_again_later_is_not_called_damaged(facts: Bus, seen: Events) -> None:
    facts.emit(StreamNotOpened("prices", TransportError("the archive did not respond", remedy="Wait.")))
    assert [name for name, _ in seen] == ["error"]


def test_a_slow_commit_is_reported_with_its_phases(facts: Bus, seen: Events) -> None:
    facts.emit(committed(0.99))
    assert seen == []
    facts.emit(committed(1.5))
    name, fields = seen[0]
    assert name == "commit_slow"
    assert fields["seconds"] == pytest.approx(1.5)
    phases = [fields[phase] for phase in ("stage_s", "publish_s", "record_s", "journal_s")]
    assert sum(phases) == pytest.approx(fields["seconds"])


def test_a_stopped_recording_names_stream_partition_and_recording(facts: Bus, seen: Events) -> None:
    facts.emit(RecordingStopped("prices", 3, 17, TransportError("recording 17 stopped")))
    assert seen == [
        ("recording_stopped", {"stream": "prices", "partition": 3, "recording": 17, "error": "recording 17 stopped"})
    ]
