"""deploy/grafana.json: its expressions use only what a server exposes, and its panels do not overlap."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from tests.programs import ROOT
from tests.promql import Aggregation, Binary, Call, Expression, Selector, parse, references
from tests.unit.deploy.exposed import exposed

DASHBOARD: Final[dict[str, Any]] = json.loads((ROOT / "deploy" / "grafana.json").read_text())
PANELS: Final[list[dict[str, Any]]] = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
TARGETS: Final = [
    pytest.param(target, id=f"{panel['title']} {target['refId']}") for panel in PANELS for target in panel["targets"]
]
ROWS: Final = [
    "Overview",
    "Connections",
    "Refusals",
    "Commits",
    "Streams",
    "Node",
    "Disk",
    "Memory",
    "Process and limits",
]


def labels_of(expression: Expression) -> frozenset[str]:
    """Return the labels that the series of an expression have."""
    match expression:
        case Selector():
            return exposed()[expression.metric]
        case Call():
            (argument,) = [one for one in expression.arguments if isinstance(one, Selector | Aggregation | Call)]
            removed = {"le"} if expression.function == "histogram_quantile" else set()
            return labels_of(argument) - removed
        case Aggregation():
            kept = labels_of(expression.argument)
            return kept & {*expression.labels} if expression.grouping == "by" else kept - {*expression.labels}
        case Binary():
            sides = [one for one in (expression.left, expression.right) if any(references(one))]
            return frozenset.intersection(*map(labels_of, sides))
    return frozenset()


def test_the_dashboard_has_its_rows_in_order() -> None:
    assert [one["title"] for one in DASHBOARD["panels"] if one["type"] == "row"] == ROWS


@pytest.mark.parametrize("target", TARGETS)
def test_an_expression_uses_only_metrics_and_labels_that_a_server_exposes(target: dict[str, Any]) -> None:
    known = exposed()
    found = list(references(parse(target["expr"])))
    assert found
    for metric, labels in found:
        assert metric in known
        assert labels <= known[metric]
        assert "instance" in labels  # every panel is of the chosen servers


@pytest.mark.parametrize("target", TARGETS)
def test_a_legend_tells_the_series_of_an_expression_apart(target: dict[str, Any]) -> None:
    shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    have = labels_of(parse(target["expr"])) - {"job"}
    assert shown <= have
    assert have - shown <= {"instance"} or "build_info" in target["expr"]


def test_a_counter_is_shown_as_a_rate() -> None:
    for target in (target for panel in PANELS for target in panel["targets"]):
        for name in re.findall(r"aeron_spark_\w+(?:_total|_bucket|_count|_sum)\b", target["expr"]):
            assert f"rate({name}{{" in target["expr"]


def test_every_metric_of_the_alerts_has_a_panel() -> None:
    alerts = (ROOT / "deploy" / "alerts.yml").read_text()
    shown = json.dumps(DASHBOARD)
    for name in set(re.findall(r"aeron_spark_\w+", alerts)) - {"aeron_spark_event_loop_turn_seconds_count"}:
        assert name in shown


def test_panels_have_different_ids_and_do_not_overlap() -> None:
    taken: dict[tuple[int, int], int] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["id"]) == panel["id"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_all_panels_use_the_chosen_data_source() -> None:
    names = {one["name"] for one in DASHBOARD["templating"]["list"]}
    assert names == {"datasource", "instance"}
    assert {one["datasource"]["uid"] for panel in PANELS for one in (panel, *panel["targets"])} == {"${datasource}"}
