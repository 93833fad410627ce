"""Evaluates the subset of PromQL that deploy/alerts.yml and deploy/grafana.json use.

A real evaluation needs Prometheus. The subset, with Prometheus' rules for each part:

* numbers; ``+ - * /``; ``== != < <= > >=`` as filters; ``and or unless``, on equal labels without the metric's name
* selectors with ``= != =~ !~``, and ranges such as ``[5m]``
* ``rate``, ``increase``, ``histogram_quantile``, ``absent``, ``time()``
* ``sum``, ``min``, ``max``, ``avg`` and ``count``, with ``by`` or ``without``

``evaluate`` takes two scrapes. An instant selector has the values of the second one. A range selector has both, so a
rate is the increase from one to the other in the time between them: Prometheus extrapolates to the ends of the
range, this module does not.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

Labels = frozenset[tuple[str, str]]  # without the metric's name
Vector = dict[Labels, float]

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.])|(?P<name>[A-Za-z_:][\w:]*)"
    r'|(?P<string>"(?:[^"\\]|\\.)*")|(?P<range>\[\w+\])|(?P<symbol>==|!=|<=|>=|=~|!~|[-+*/<>={}(),]))'
)
_FUNCTIONS: Final = frozenset({"rate", "increase", "histogram_quantile", "absent", "time"})
_AGGREGATIONS: Final[dict[str, Callable[[list[float]], float]]] = {
    "sum": sum,
    "min": min,
    "max": max,
    "avg": lambda values: sum(values) / len(values),
    "count": len,
}
_ARITHMETIC: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda one, other: math.nan if other == 0 else one / other,
}
_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SETS: Final = ("or", "and", "unless")
# From the weakest binding to the strongest; operators of one level are evaluated from left to right.
_LEVELS: Final = (("or",), ("and", "unless"), tuple(_COMPARISONS), ("+", "-"), ("*", "/"))


@dataclass(frozen=True)
class Number:
    value: float


@dataclass(frozen=True)
class Selector:
    """A metric, its matchers as (label, operator, value), and whether a range follows."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    is_range: bool


@dataclass(frozen=True)
class Call:
    """A call of a function."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Aggregation:
    """An aggregation over the series that are equal in the labels (``by``), or in all others (``without``)."""

    function: str
    grouping: str  # "by", "without" or ""
    labels: tuple[str, ...]
    argument: Expression


@dataclass(frozen=True)
class Binary:
    """An operator between two expressions."""

    operator: str
    left: Expression
    right: Expression


Expression = Number | Selector | Call | Aggregation | Binary


@dataclass(frozen=True)
class Scrape:
    """The samples of one scrape: values by metric and labels, and its time in seconds since 1970."""

    time_s: float
    samples: Mapping[tuple[str, Labels], float]


def labels(**values: str) -> Labels:
    return frozenset(values.items())


def parse(text: str) -> Expression:
    """Parse an expression. Raises ValueError for one that is wrong, or not in the subset."""
    parser = _Parser(text)
    found = parser.expression(0)
    if parser.peek():
        raise ValueError(f"{text!r}: unexpected {parser.peek()!r}")
    return found


def references(expression: Expression) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each metric of an expression with the labels that the expression expects it to have."""
    yield from _references(expression, frozenset())


def _references(expression: Expression, outer: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    match expression:
        case Selector():
            yield expression.metric, outer | {label for label, _, _ in expression.matchers}
        case Call():
            if expression.function == "histogram_quantile":
                outer = outer | {"le"}
            for argument in expression.arguments:
                yield from _references(argument, outer)
        case Aggregation():
            yield from _references(expression.argument, outer | frozenset(expression.labels))
        case Binary():
            yield from _references(expression.left, outer)
            yield from _references(expression.right, outer)


def evaluate(expression: Expression, before: Scrape, now: Scrape) -> Vector:
    """Return the series of an expression's result, with their values. Raises ValueError for a number or a range."""
    result = _Evaluator(before, now).evaluate(expression)
    if not isinstance(result, dict):
        raise ValueError("the expression is a number, expected series")
    return result


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"{text!r}: unexpected {text[at:]!r}")
            kind = match.lastgroup or ""
            self._tokens.append((kind, match[kind]))
            at = match.end()

    def peek(self) -> str:
        """Return the next token, or ""."""
        return self._tokens[0][1] if self._tokens else ""

    def _next(self, expected: str = "") -> tuple[str, str]:
        if not self._tokens or (expected and self.peek() != expected):
            raise ValueError(f"{self._text!r}: expected {expected or 'more'}, found {self.peek()!r}")
        return self._tokens.pop(0)

    def expression(self, level: int) -> Expression:
        """Parse an expression whose operators bind at least as strongly as this level."""
        if level == len(_LEVELS):
            return self._operand()
        left = self.expression(level + 1)
        while self.peek() in _LEVELS[level]:
            found = self._next()[1]
            left = Binary(found, left, self.expression(level + 1))
        return left

    def _operand(self) -> Expression:
        kind, text = self._next()
        if text == "(":
            found = self.expression(0)
            self._next(")")
            return found
        if kind == "number":
            return Number(float(text))
        if kind != "name":
            raise ValueError(f"{self._text!r}: unexpected {text!r}")
        if text in _AGGREGATIONS:
            return self._aggregation(text)
        if text in _FUNCTIONS:
            return Call(text, self._arguments())
        if self.peek() == "(":
            raise ValueError(f"{self._text!r}: the function {text!r} is not in the subset of tests/promql.py")
        return self._selector(text)

    def _arguments(self) -> tuple[Expression, ...]:
        self._next("(")
        found = []
        while self.peek() != ")":
            found.append(self.expression(0))
            if self.peek() != ")":
                self._next(",")
        self._next(")")
        return tuple(found)

    def _aggregation(self, function: str) -> Aggregation:
        grouping, names = self._grouping()
        arguments = self._arguments()
        if not grouping:
            grouping, names = self._grouping()
        if len(arguments) != 1:
            raise ValueError(f"{self._text!r}: {function} has {len(arguments)} arguments, expected 1")
        return Aggregation(function, grouping, names, arguments[0])

    def _grouping(self) -> tuple[str, tuple[str, ...]]:
        if self.peek() not in ("by", "without"):
            return "", ()
        grouping = self._next()[1]
        self._next("(")
        names = []
        while self.peek() != ")":
            names.append(self._next()[1])
            if self.peek() != ")":
                self._next(",")
        self._next(")")
        return grouping, tuple(names)

    def _selector(self, metric: str) -> Selector:
        matchers = []
        if self.peek() == "{":
            self._next()
            while self.peek() != "}":
                label, compared = self._next()[1], self._next()[1]
                kind, value = self._next()
                if kind != "string" or compared not in ("=", "!=", "=~", "!~"):
                    raise ValueError(f"{self._text!r}: {label}{compared}{value} is not a matcher")
                matchers.append((label, compared, value[1:-1]))
                if self.peek() != "}":
                    self._next(",")
            self._next("}")
        is_range = bool(self._tokens) and self._tokens[0][0] == "range"
        if is_range:
            self._next()
        return Selector(metric, tuple(matchers), is_range)


class _Evaluator:
    def __init__(self, before: Scrape, now: Scrape) -> None:
        self._before = before
        self._now = now

    def evaluate(self, expression: Expression) -> Vector | float:
        match expression:
            case Number():
                return expression.value
            case Selector():
                if expression.is_range:
                    raise ValueError(f"{expression.metric}: a range is only allowed in rate and increase")
                return _select(expression, self._now)
            case Call():
                return self._call(expression)
            case Aggregation():
                return self._aggregate(expression)
            case Binary():
                return self._binary(expression)

    def _vector(self, expression: Expression) -> Vector:
        found = self.evaluate(expression)
        if not isinstance(found, dict):
            raise ValueError("a number, expected series")
        return found

    def _call(self, call: Call) -> Vector | float:
        match call.function, call.arguments:
            case "time", ():
                return self._now.time_s
            case "absent", (Selector() as argument,):
                exact = frozenset((label, value) for label, compared, value in argument.matchers if compared == "=")
                return {} if self._vector(argument) else {exact: 1.0}
            case ("rate" | "increase") as function, (Selector(is_range=True) as argument,):
                seconds = self._now.time_s - self._before.time_s if function == "rate" else 1.0
                return {one: grown / seconds for one, grown in self._increases(argument).items()}
            case "histogram_quantile", (Number(value=wanted), argument):
                return _quantiles(wanted, self._vector(argument))
        raise ValueError(f"{call.function} with these arguments is not in the subset of tests/promql.py")

    def _increases(self, selector: Selector) -> Vector:
        before, now = _select(selector, self._before), _select(selector, self._now)
        # A counter that is smaller than before was reset to 0 in between.
        return {
            one: value - before[one] if value >= before[one] else value for one, value in now.items() if one in before
        }

    def _aggregate(self, aggregation: Aggregation) -> Vector:
        groups: dict[Labels, list[float]] = {}
        for one, value in self._vector(aggregation.argument).items():
            kept = frozenset(
                (label, text)
                for label, text in one
                if (aggregation.grouping == "by" and label in aggregation.labels)
                or (aggregation.grouping == "without" and label not in aggregation.labels)
            )
            groups.setdefault(kept, []).append(value)
        return {one: _AGGREGATIONS[aggregation.function](values) for one, values in groups.items()}

    def _binary(self, binary: Binary) -> Vector | float:
        if binary.operator in _SETS:
            left, right = self._vector(binary.left), self._vector(binary.right)
            if binary.operator == "or":
                return right | left
            return {one: value for one, value in left.items() if (one in right) == (binary.operator == "and")}
        one, other = self.evaluate(binary.left), self.evaluate(binary.right)
        if not isinstance(one, dict) and not isinstance(other, dict):
            if binary.operator in _COMPARISONS:
                raise ValueError("a comparison of two numbers")
            return _ARITHMETIC[binary.operator](one, other)
        pairs = _pairs(one, other)
        if binary.operator in _COMPARISONS:
            compare = _COMPARISONS[binary.operator]
            # The result has the value of the side with series; of two, that of the left one.
            return {
                key: (left if isinstance(one, dict) else right)
                for key, (left, right) in pairs.items()
                if compare(left, right)
            }
        return {key: _ARITHMETIC[binary.operator](left, right) for key, (left, right) in pairs.items()}


def _pairs(one: Vector | float, other: Vector | float) -> dict[Labels, tuple[float, float]]:
    if not isinstance(one, dict):
        return {key: (one, right) for key, right in other.items()} if isinstance(other, dict) else {}
    if not isinstance(other, dict):
        return {key: (left, other) for key, left in one.items()}
    return {key: (left, other[key]) for key, left in one.items() if key in other}


def _select(selector: Selector, scrape: Scrape) -> Vector:
    return {
        found: value
        for (metric, found), value in scrape.samples.items()
        if metric == selector.metric and all(_matches(dict(found), *matcher) for matcher in selector.matchers)
    }


def _matches(found: Mapping[str, str], label: str, compared: str, wanted: str) -> bool:
    value = found.get(label, "")
    if compared in ("=", "!="):
        return (value == wanted) == (compared == "=")
    return bool(re.fullmatch(wanted, value)) == (compared == "=~")


def _quantiles(wanted: float, buckets: Vector) -> Vector:
    histograms: dict[Labels, list[tuple[float, float]]] = {}
    for one, count in buckets.items():
        bound = float(dict(one)["le"].replace("+Inf", "inf"))
        rest = frozenset(label for label in one if label[0] != "le")
        histograms.setdefault(rest, []).append((bound, count))
    return {one: _quantile(wanted, sorted(found)) for one, found in histograms.items()}


def _quantile(wanted: float, buckets: list[tuple[float, float]]) -> float:
    """Return a quantile: linear within its bucket; of the last bucket the bound of the one before."""
    if buckets[-1][0] != math.inf or len(buckets) < 2 or buckets[-1][1] == 0:
        return math.nan
    rank = wanted * buckets[-1][1]
    index = next(at for at, (_, count) in enumerate(buckets) if count >= rank)
    if index == len(buckets) - 1:
        return buckets[-2][0]
    start, below = buckets[index - 1] if index else (0.0, 0.0)
    end, count = buckets[index]
    return start + (end - start) * (rank - below) / (count - below)
