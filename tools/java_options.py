"""Prints ``options.json``: the declared options and channel parameters, for the Spark source in Java."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aeron_spark.options import kafka_names
from aeron_spark.options.declaration import SPARK_OPTIONS, Option, Where, all_options
from aeron_spark.transport.channel import OTHER_NAMES, PARAMETERS, ParameterType

PATH: Final = Path(__file__).parents[1] / "jars/spark/src/main/resources/io/aeronspark/spark/options.json"


def java_options() -> str:
    """Return the text of ``options.json``: a line for each option and each parameter."""
    parameters = {name: _parameter(kind) for name, kind in PARAMETERS.items()}
    parts = {
        "options": _lines("[", [json.dumps(_option(one)) for one in all_options()], "]"),
        "sparkOptions": json.dumps(sorted(SPARK_OPTIONS)),
        "kafkaOptions": _lines("{", _items(kafka_names.OPTIONS), "}"),
        "channelParameters": _lines("{", _items(parameters), "}"),
        "otherParameterNames": _lines("{", _items(OTHER_NAMES), "}"),
    }
    return _lines("{", [f"{json.dumps(name)}: {text}" for name, text in parts.items()], "}") + "\n"


def _lines(begin: str, texts: list[str], end: str) -> str:
    return begin + "\n" + ",\n".join(texts) + "\n" + end


def _items(values: Mapping[str, Any]) -> list[str]:
    return [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in values.items()]


def _option(one: Option) -> dict[str, Any]:
    return {
        "name": one.name,
        "default": one.default,
        "batchDefault": one.batch_default,
        "where": _values(one.where),
        "ignored": _values(one.ignored),
        "route": None if one.route is None else one.route.value,
        "formats": sorted(one.value for one in one.formats),
        "choices": one.type.choices,
        "low": one.low,
        "high": one.high,
        "example": one.example,
        "required": one.required,
    }


def _values(places: frozenset[Where]) -> list[str]:
    return sorted(place.value for place in places)


def _parameter(kind: ParameterType) -> dict[str, Any]:
    return {"type": kind.name, "low": kind.low, "high": kind.high, "words": kind.words}


if __name__ == "__main__":
    sys.stdout.write(java_options())
