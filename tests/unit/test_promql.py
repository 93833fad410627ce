"""The evaluator of PromQL in tests/promql.py gives the results that Prometheus documents."""

from __future__ import annotations

import math

import pytest

from tests.promql import Binary, Number, Scrape, Selector, Vector, evaluate, labels, parse, references

START_S = 1_700_000_000.0
GB = labels(volume="archive")


def scrape(at_s: float = 60.0, /, **metrics: Vector | float) -> Scrape:
    """Return a scrape; a metric is a value without labels, or values by labels."""
    samples = {
        (name, one): value
        for name, found in metrics.items()
        for one, value in (found if isinstance(found, dict) else {labels(): found}).items()
    }
    return Scrape(START_S + at_s, samples)


def result(text: str, now: Scrape, before: Scrape | None = None) -> Vector:
    return evaluate(parse(text), before or scrape(0.0), now)


def test_an_operator_binds_as_in_prometheus() -> None:
    up, down = Selector("up", (), False), Selector("down", (), False)
    assert parse("up + 2 * 3 > 1 and down") == Binary(
        "and",
        Binary(">", Binary("+", up, Binary("*", Number(2), Number(3))), Number(1)),
        down,
    )
    assert parse("up or down and up") == Binary("or", up, Binary("and", down, up))
    assert parse("up - 1 - 2") == Binary("-", Binary("-", up, Number(1)), Number(2))
    assert parse("(up or down) and up") == Binary("and", Binary("or", up, down), up)


@pytest.mark.parametrize(
    "text", ["", "up >", "up up", "up{job}", 'up{job=="a"}', "sum by (job) up", "predict(up)", "up[5m", "sum(up, up)"]
)
def test_a_wrong_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(text)


def test_the_metrics_and_labels_of_an_expression_are_found() -> None:
    text = (
        'histogram_quantile(0.9, sum by (le, phase) (rate(took_bucket{phase="total"}[5m]))) > 1 or absent(up{job="x"})'
    )
    assert list(references(parse(text))) == [
        ("took_bucket", frozenset({"le", "phase"})),
        ("up", frozenset({"job"})),
    ]


def test_a_comparison_filters_and_keeps_the_value() -> None:
    now = scrape(ready=0.0, free={GB: 5.0, labels(volume="store"): 50.0}, reserve={GB: 10.0})
    assert result("ready == 0", now) == {labels(): 0.0}
    assert result("ready != 0", now) == {}
    assert result("free < 10", now) == {GB: 5.0}
    assert result("10 > free", now) == {GB: 5.0}
    assert result("free < reserve", now) == {GB: 5.0}
    assert result("free < reserve * 0.4", now) == {}
    assert result("free <= 5 or free >= 50", now) == {GB: 5.0, labels(volume="store"): 50.0}


def test_arithmetic_matches_series_with_equal_labels() -> None:
    now = scrape(free={GB: 5.0, labels(volume="store"): 50.0}, reserve={GB: 10.0})
    assert result("free + reserve", now) == {GB: 15.0}
    assert result("(free - reserve) / 2", now) == {GB: -2.5}
    assert result("free * 2", now) == {GB: 10.0, labels(volume="store"): 100.0}
    assert math.isnan(result("free / 0", now)[GB])


def test_matchers_select_series() -> None:
    ok, damaged, ended = (labels(state=state) for state in ("ok", "damaged", "ended"))
    now = scrape(streams={ok: 4.0, damaged: 1.0, ended: 2.0})
    assert result('streams{state="ok"}', now) == {ok: 4.0}
    assert result('streams{state!="ok"}', now) == {damaged: 1.0, ended: 2.0}
    assert result('streams{state=~"dam.*|ended"}', now) == {damaged: 1.0, ended: 2.0}
    assert result('streams{state=~"dam"}', now) == {}  # a matcher is for the whole value
    assert result('streams{state!~"dam.*"}', now) == {ok: 4.0, ended: 2.0}
    assert result('streams{other=""}', now) == {ok: 4.0, damaged: 1.0, ended: 2.0}


def test_the_sets_compare_labels() -> None:
    one, other = labels(job="a"), labels(job="b")
    now = scrape(up={one: 1.0, other: 0.0}, ready={one: 7.0})
    assert result("up and ready", now) == {one: 1.0}
    assert result("up unless ready", now) == {other: 0.0}
    assert result("ready or up", now) == {one: 7.0, other: 0.0}


def test_a_rate_is_the_increase_per_second_and_a_reset_counts_from_zero() -> None:
    full, rate = labels(reason="full"), labels(reason="rate")
    before = scrape(0.0, refused={full: 10.0, rate: 50.0})
    now = scrape(60.0, refused={full: 70.0, rate: 30.0, labels(reason="new"): 5.0})
    assert result("increase(refused[5m])", now, before) == {full: 60.0, rate: 30.0}
    assert result('rate(refused{reason="full"}[5m])', now, before) == {full: 1.0}
    assert result("sum without (reason) (rate(refused[5m])) > 1", now, before) == {labels(): 1.5}


def test_aggregations_group_by_labels() -> None:
    now = scrape(
        queued={
            labels(queue="calls", instance="a"): 1.0,
            labels(queue="bulk", instance="a"): 3.0,
            labels(queue="bulk", instance="b"): 5.0,
        }
    )
    a, b = labels(instance="a"), labels(instance="b")
    assert result("sum by (instance) (queued)", now) == {a: 4.0, b: 5.0}
    assert result("sum(queued) without (queue)", now) == {a: 4.0, b: 5.0}
    assert result("sum(queued)", now) == {labels(): 9.0}
    assert [result(f"{name}(queued)", now) for name in ("min", "max", "avg", "count")] == [
        {labels(): 1.0}, {labels(): 5.0}, {labels(): 3.0}, {labels(): 3.0},
    ]  # fmt: skip


def test_absent_has_a_series_only_without_the_metric() -> None:
    assert result('absent(up{job="x"})', scrape()) == {labels(job="x"): 1.0}
    assert result('absent(up{job="x"})', scrape(up={labels(job="x"): 0.0})) == {}


def test_time_is_the_time_of_the_scrape() -> None:
    assert result("time() - started", scrape(60.0, started=START_S)) == {labels(): 60.0}


def buckets(**counts: float) -> Vector:
    """Return cumulative buckets; ``_1`` is the bound 0.1."""
    bounds = {"_1": "0.1", "_5": "0.5", "one": "1.0", "inf": "+Inf"}
    return {labels(le=bounds[name]): count for name, count in counts.items()}


def test_a_quantile_of_a_histogram_is_linear_in_its_bucket() -> None:
    now = scrape(took_bucket=buckets(_1=50.0, _5=90.0, one=100.0, inf=100.0))
    for quantile, expected in ((0.25, 0.05), (0.5, 0.1), (0.7, 0.3), (0.95, 0.75)):
        assert result(f"histogram_quantile({quantile}, took_bucket)", now)[labels()] == pytest.approx(expected)
    now = scrape(took_bucket=buckets(_1=0.0, one=0.0, inf=10.0))
    assert result("histogram_quantile(0.5, took_bucket)", now) == {labels(): 1.0}
    now = scrape(took_bucket=buckets(_1=0.0, one=0.0, inf=0.0))
    assert math.isnan(result("histogram_quantile(0.5, took_bucket)", now)[labels()])
    assert result("histogram_quantile(0.5, took_bucket) > 1", now) == {}


@pytest.mark.parametrize("text", ["1 + 2", "time()", "1 > 2", "up[5m]", "rate(up)", "absent(up + 1)", "sum(1)"])
def test_an_expression_without_series_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        result(text, scrape(up=1.0))
