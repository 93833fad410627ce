"""deploy/alerts.yml: each alert fires for its trouble and for nothing else, and has its entry in docs/operations.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.promql import Scrape, evaluate, parse, references
from tests.unit.deploy.exposed import exposed, scrape

ROOT: Final = Path(__file__).resolve().parents[3]
RULES: Final[list[dict[str, Any]]] = [
    rule for group in yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
ALERTS: Final = {rule["alert"]: rule for rule in RULES}
RUNBOOK: Final = (ROOT / "docs" / "operations.md").read_text()
EXPECTED: Final = {
    "ServerDown", "NotReady", "ReloadFailed", "EventLoopStalled", "CommitSlow", "StreamDamaged", "DiskLow", "ShmLow",
    "DriverLost", "MemoryHigh", "RefusalsHigh", "ReaderLag",
}  # fmt: skip
GIB: Final = 1024.0**3


def healthy(at_s: float, /, **changed: Any) -> Scrape:
    """Return a scrape of a server without trouble that has served for ``at_s`` seconds, with changed metrics."""
    values: dict[str, Any] = {
        "up": 1.0,
        "ready": 1.0,
        "config_last_reload_successful": 1.0,
        "event_loop_turn_seconds_count": 100.0 * at_s,
        "event_loop_turn_seconds_bucket": {
            'le="0.01"': 99.0 * at_s,
            'le="0.1"': 100.0 * at_s,
            'le="0.5"': 100.0 * at_s,
            'le="+Inf"': 100.0 * at_s,
        },
        "commit_duration_seconds_bucket": {
            'phase="total",le="0.1"': 10.0 * at_s,
            'phase="total",le="1.0"': 10.0 * at_s,
            'phase="total",le="10.0"': 10.0 * at_s,
            'phase="total",le="+Inf"': 10.0 * at_s,
        },
        "streams": {'state="ok"': 3.0, 'state="damaged"': 0.0, 'state="read-only"': 0.0, 'state="ended"': 1.0},
        "disk_free_bytes": {'volume="store"': 5 * GIB, 'volume="archive"': 500 * GIB},
        "disk_reserve_bytes": {'volume="store"': 2 * GIB, 'volume="archive"': 2 * GIB},
        "shm_free_bytes": 4 * GIB,
        "driver_up": 1.0,
        "queued_bytes": {'queue="calls"': 0.1 * GIB, 'queue="send"': 0.2 * GIB},
        "memory_limit_bytes": 0.5 * GIB,
        "refusals_total": {'reason="rate"': 0.1 * at_s, 'reason="full"': 5.0},
        "stream_reader_lag_seconds": {'stream="quotes"': 2.0, 'stream="trades"': 590.0},
    }
    return scrape(at_s, **(values | changed))


SLOW_TURNS: Final = {'le="0.01"': 6_100.0, 'le="0.1"': 6_200.0, 'le="0.5"': 6_300.0, 'le="+Inf"': 6_300.0}
SLOW_COMMITS: Final = {
    'phase="total",le="0.1"': 1_080.0,
    'phase="total",le="1.0"': 1_180.0,
    'phase="total",le="10.0"': 1_200.0,
    'phase="total",le="+Inf"': 1_200.0,
}
# The changes that provoke each alert, at 120 s, and the labels and value of the alert.
TROUBLE: Final[list[tuple[str, dict[str, Any], dict[str, str], float]]] = [
    ("ServerDown", {"up": 0.0}, {}, 0.0),
    ("NotReady", {"ready": 0.0}, {}, 0.0),
    ("ReloadFailed", {"config_last_reload_successful": 0.0}, {}, 0.0),
    ("EventLoopStalled", {"event_loop_turn_seconds_count": 6_000.0}, {}, 0.0),
    ("EventLoopStalled", {"event_loop_turn_seconds_bucket": SLOW_TURNS}, {}, 0.488),
    ("CommitSlow", {"commit_duration_seconds_bucket": SLOW_COMMITS}, {"phase": "total"}, 7.3),
    ("StreamDamaged", {"streams": {'state="ok"': 2.0, 'state="damaged"': 1.0}}, {"state": "damaged"}, 1.0),
    ("StreamDamaged", {"streams": {'state="ok"': 2.0, 'state="read-only"': 2.0}}, {"state": "read-only"}, 2.0),
    ("DiskLow", {"disk_free_bytes": {'volume="store"': GIB, 'volume="archive"': 5 * GIB}}, {"volume": "store"}, GIB),
    ("ShmLow", {"shm_free_bytes": 0.2 * GIB}, {}, 0.2 * GIB),
    ("DriverLost", {"driver_up": 0.0}, {}, 0.0),
    ("MemoryHigh", {"queued_bytes": {'queue="calls"': 0.25 * GIB, 'queue="send"': 0.25 * GIB}}, {}, 0.5 * GIB),
    ("RefusalsHigh", {"refusals_total": {'reason="rate"': 66.0, 'reason="full"': 65.0}}, {}, 2.0),
    ("ReaderLag", {"stream_reader_lag_seconds": {'stream="quotes"': 700.0}}, {"stream": "quotes"}, 700.0),
]  # fmt: skip


def fired(changes: dict[str, Any]) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Return the alerts, with their series, of a server that was healthy 60 s before."""
    before, now = healthy(60.0), healthy(120.0, **changes)
    results = {name: evaluate(parse(rule["expr"]), before, now) for name, rule in ALERTS.items()}
    return {name: series for name, series in results.items() if series}


def test_the_file_has_each_alert_once() -> None:
    assert [rule["alert"] for rule in RULES] == list(dict.fromkeys(rule["alert"] for rule in RULES))
    assert set(ALERTS) == EXPECTED
    assert {name for name, *_ in TROUBLE} == EXPECTED


def test_a_healthy_server_has_no_alert() -> None:
    assert fired({}) == {}


@pytest.mark.parametrize(("alert", "changes", "labels", "value"), TROUBLE, ids=[one[0] for one in TROUBLE])
def test_a_trouble_fires_its_alert_only(
    alert: str, changes: dict[str, Any], labels: dict[str, str], value: float
) -> None:
    found = fired(changes)
    assert set(found) == {alert}
    ((series, shown),) = found[alert].items()
    assert dict(series) == {"instance": "10.0.0.7:9464", "job": "aeron-spark"} | labels
    assert shown == pytest.approx(value)


def test_a_server_that_prometheus_does_not_know_is_down() -> None:
    nothing = scrape(120.0)
    assert list(evaluate(parse(ALERTS["ServerDown"]["expr"]), nothing, nothing).values()) == [1.0]


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_uses_only_metrics_and_labels_that_a_server_exposes(alert: str) -> None:
    known = exposed()
    for metric, labels in references(parse(ALERTS[alert]["expr"])):
        assert metric in known
        assert labels <= known[metric]


def labels_of_annotations(rule: dict[str, Any]) -> Iterator[str]:
    for text in rule["annotations"].values():
        yield from re.findall(r"\$labels\.(\w+)", text)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_the_summary_of_an_alert_uses_only_labels_that_its_series_have(rule: dict[str, Any]) -> None:
    ((_, changes, labels, _),) = [one for one in TROUBLE if one[0] == rule["alert"]][:1]
    (series,) = fired(changes)[rule["alert"]]
    assert set(labels_of_annotations(rule)) <= {label for label, _ in series}
    assert set(labels) <= set(labels_of_annotations(rule)) | {"phase"}
    assert rule["annotations"]["summary"].endswith(".")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_a_severity_and_its_entry_in_the_runbook(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    name = rule["alert"]
    assert rule["annotations"]["runbook_url"] == f"docs/operations.md#alert-{name.lower()}"
    entry = RUNBOOK.split(f"### Alert {name}\n", 1)[1].split("\n##", 1)[0]
    for part in ("**Meaning.**", "**Look at.**", "**Do.**"):
        assert part in entry


def test_the_runbook_has_no_entry_without_an_alert() -> None:
    assert set(re.findall(r"^### Alert (\w+)$", RUNBOOK, re.MULTILINE)) == EXPECTED
