"""deploy/alerts.yml: each alert fires for its trouble and for nothing else, and has its entry in docs/alerts.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
import yaml

from aeron_spark.node.paths import RESERVE_BYTES
from tests.programs import ROOT
from tests.promql import Scrape, evaluate, parse, references
from tests.unit.deploy.exposed import EPOCH_S, TARGET, down, exposed, scrape

RULES: Final[list[dict[str, Any]]] = [
    rule for group in yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
ALERTS: Final = {rule["alert"]: rule for rule in RULES}
RUNBOOK: Final = (ROOT / "docs" / "alerts.md").read_text()
EXPECTED: Final = {
    "ServerDown", "NotReady", "ReloadFailed", "EventLoopStalled", "CommitSlow", "StreamDamaged", "DiskLow", "ShmLow",
    "DriverLost", "MemoryHigh", "RefusalsHigh", "ReaderLag", "Diverged", "BackupOld", "CommitFailures", "LimitNear",
    "KeyExpires", "LogLinesDropped",
}  # fmt: skip
GIB: Final = 1024.0**3


def healthy(at_s: int, changes: Mapping[str, Any] | None = None) -> Scrape:
    """Return the scrape of a server without trouble that has served for ``at_s`` seconds, with changes of its state.

    It commits ten times a second, and its event loop turns as often.
    """
    state: dict[str, dict[tuple[str, ...], float]] = {
        "ready": {(): 1.0},
        "config_last_reload_successful": {(): 1.0},
        "streams": {("ok",): 3.0, ("read-only",): 0.0, ("damaged",): 0.0, ("recovering",): 0.0},
        "stream_bytes": {("quotes",): GIB, ("trades",): GIB},
        "stream_reader_lag_seconds": {("quotes",): 2.0, ("trades",): 590.0},
        "disk_free_bytes": {("store",): 5 * GIB, ("archive",): 500 * GIB},
        "disk_reserve_bytes": {("store",): 2 * GIB, ("archive",): 2 * GIB},
        "shm_free_bytes": {(): 4 * GIB},
        "shm_reserve_bytes": {(): float(RESERVE_BYTES)},
        "driver_up": {(): 1.0},
        "queued_bytes": {("received",): 0.1 * GIB, ("sent",): 0.2 * GIB},
        "memory_limit_bytes": {(): 0.5 * GIB},
        "refusals_total": {("rate",): 0.1 * at_s, ("full",): 5.0},
        "diverged_total": {(): 2.0},
        "commit_failures_total": {("TransportError",): 1.0, ("schema",): 0.1 * at_s},
        "limit": {("maxConnections",): 100.0, ("stageBytes",): GIB},
        "limit_used": {("maxConnections",): 70.0, ("stageBytes",): 0.0, ("maxPartitions",): 5.0},
        "next_key_expiry_timestamp_seconds": {(): EPOCH_S + 15 * 86400},
        "log_events_dropped_total": {(): 7.0},
        "backup_last_success_timestamp_seconds": {(): EPOCH_S + at_s - 25 * 3600},
    }
    changes = dict(changes or {})
    turns = changes.pop("turns", {0.002: 10 * at_s})
    commits = {"journal": {0.02: 10 * at_s}, "total": changes.pop("commits", {0.05: 10 * at_s})}
    assert changes.keys() <= state.keys()
    return scrape(at_s, state | changes, turns, commits)


# The changes that provoke each alert, at 120 s, and the labels and value of the alert.
TROUBLE: Final[list[tuple[str, dict[str, Any], dict[str, str], float]]] = [
    ("NotReady", {"ready": {(): 0.0}}, {}, 0.0),
    ("ReloadFailed", {"config_last_reload_successful": {(): 0.0}}, {}, 0.0),
    ("EventLoopStalled", {"turns": {0.002: 600}}, {}, 0.0),
    ("EventLoopStalled", {"turns": {0.002: 1_100, 0.3: 100}}, {}, 0.485),
    ("CommitSlow", {"commits": {0.05: 1_100, 2.0: 100}}, {"phase": "total"}, 2.41),
    ("StreamDamaged", {"streams": {("ok",): 2.0, ("damaged",): 1.0}}, {"state": "damaged"}, 1.0),
    ("StreamDamaged", {"streams": {("ok",): 1.0, ("read-only",): 2.0}}, {"state": "read-only"}, 2.0),
    ("DiskLow", {"disk_free_bytes": {("store",): 3 * GIB, ("archive",): 5 * GIB}}, {"volume": "store"}, 3 * GIB),
    ("ShmLow", {"shm_free_bytes": {(): RESERVE_BYTES - 1.0}}, {}, RESERVE_BYTES - 1.0),
    ("DriverLost", {"driver_up": {(): 0.0}}, {}, 0.0),
    ("MemoryHigh", {"queued_bytes": {("received",): 0.25 * GIB, ("sent",): 0.25 * GIB}}, {}, 0.5 * GIB),
    ("RefusalsHigh", {"refusals_total": {("rate",): 66.0, ("full",): 65.0}}, {}, 2.0),
    ("Diverged", {"diverged_total": {(): 5.0}}, {}, 3.0),
    ("BackupOld", {"backup_last_success_timestamp_seconds": {(): 0.0}}, {}, EPOCH_S + 120.0),
    ("CommitFailures", {"commit_failures_total": {("TransportError",): 3.0, ("schema",): 12.0}}, {}, 2.0),
    ("LimitNear", {"limit_used": {("maxConnections",): 90.0}}, {"option": "maxConnections"}, 0.9),
    ("KeyExpires", {"next_key_expiry_timestamp_seconds": {(): EPOCH_S + 86520}}, {}, 86400.0),
    ("LogLinesDropped", {"log_events_dropped_total": {(): 9.0}}, {}, 2.0),
    ("ReaderLag", {"stream_reader_lag_seconds": {("quotes",): 700.0}}, {"stream": "quotes"}, 700.0),
]  # fmt: skip


def fired(now: Scrape) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Return the alerts, with their series, of a server that was healthy 60 s before."""
    before = healthy(60)
    results = {name: evaluate(parse(rule["expr"]), before, now) for name, rule in ALERTS.items()}
    return {name: series for name, series in results.items() if series}


def test_the_file_has_each_alert_once() -> None:
    assert [rule["alert"] for rule in RULES] == list(dict.fromkeys(rule["alert"] for rule in RULES))
    assert set(ALERTS) == EXPECTED
    assert {name for name, *_ in TROUBLE} | {"ServerDown"} == EXPECTED


def test_a_healthy_server_has_no_alert() -> None:
    assert fired(healthy(120)) == {}


@pytest.mark.parametrize(("alert", "changes", "labels", "value"), TROUBLE, ids=[one[0] for one in TROUBLE])
def test_a_trouble_fires_its_alert_only(
    alert: str, changes: dict[str, Any], labels: dict[str, str], value: float
) -> None:
    found = fired(healthy(120, changes))
    assert set(found) == {alert}
    ((series, shown),) = found[alert].items()
    assert dict(series) == TARGET | labels
    assert shown == pytest.approx(value)


def test_a_server_without_keys_that_expire_has_no_alert() -> None:
    assert fired(healthy(120, {"next_key_expiry_timestamp_seconds": {(): 0.0}})) == {}


def test_the_first_failure_of_a_commit_is_an_increase_from_0() -> None:
    """Regression: a counter that appears with its first event has no increase for Prometheus."""
    before = healthy(60, {"commit_failures_total": {}})
    after = healthy(120, {"commit_failures_total": {("TransportError",): 1.0}})
    expression = parse(ALERTS["CommitFailures"]["expr"])
    assert list(evaluate(expression, before, after).values()) == [1.0]


def test_a_server_that_prometheus_cannot_read_is_down() -> None:
    assert fired(down(120.0)) == {"ServerDown": {frozenset(TARGET.items()): 0.0}}


def test_a_server_that_prometheus_does_not_know_is_down() -> None:
    assert list(fired(Scrape(healthy(120).time_s, {}))) == ["ServerDown"]


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
    troubles = [(healthy(120, changes), labels) for alert, changes, labels, _ in TROUBLE if alert == rule["alert"]]
    now, labels = [*troubles, (down(120.0), {})][0]
    (series,) = fired(now)[rule["alert"]]
    assert set(labels_of_annotations(rule)) <= {label for label, _ in series}
    assert set(labels) <= set(labels_of_annotations(rule)) | {"phase"}
    assert rule["annotations"]["summary"].endswith(".")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_a_severity_and_its_entry_in_the_runbook(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    name = rule["alert"]
    assert rule["annotations"]["runbook_url"] == f"docs/alerts.md#alert-{name.lower()}"
    entry = RUNBOOK.split(f"## Alert {name}\n", 1)[1].split("\n##", 1)[0]
    for part in ("**Meaning.**", "**Look at.**", "**Do.**"):
        assert part in entry


def test_the_runbook_has_no_entry_without_an_alert() -> None:
    assert set(re.findall(r"^## Alert (\w+)$", RUNBOOK, re.MULTILINE)) == EXPECTED
