"""The types of keyword options are those of the declared options, and what they allow is accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options import ClientOptions, ServerOptions, keywords
from aeron_spark.options.declaration import Option, OptionReader, Where
from tools.keyword_source import keyword_source

ENDPOINTS: Final = {
    Where.CLIENT: (ClientOptions, keywords.ClientOptions),
    Where.SERVER: (ServerOptions, keywords.ServerOptions),
}
OPTIONS: Final = [
    (where, option) for where, (declared, _) in ENDPOINTS.items() for option in declared.options().values()
]


def test_the_module_is_generated() -> None:
    assert Path(keywords.__file__).read_text(encoding="utf-8") == keyword_source(), "run `make docs`"


@pytest.mark.parametrize("where", list(ENDPOINTS))
def test_the_types_have_exactly_the_options(where: Where) -> None:
    declared, types = ENDPOINTS[where]
    assert set(types.__annotations__) == {option.argument for option in declared.options().values()}
    assert types.__required_keys__ == frozenset()


def python_values(option: Option) -> list[Any]:
    """Return the values other than a text that the type of the option allows, for its example."""
    parsed = option.parse(option.example)
    match option.type.metavar:
        case "PATH":
            return [Path(option.example)]
        case "SIZE" | "SIZE-OR-AUTO" | "WHOLE" | "DURATION" | "DURATION-OR-ZERO" | "NUMBER" | "FLAG":
            assert isinstance(parsed, int | float | bool)
            return [parsed]
        case "ADDRESSES":
            return [option.example.split(",")]
        case "PORT-PAIR":
            return [[int(port) for port in option.example.split(",")]]
        case "NETWORKS":
            return [option.example.split(","), tuple(option.example.split(","))]
        case _:
            return []


@pytest.mark.parametrize(("where", "option"), OPTIONS, ids=lambda one: getattr(one, "argument", str(one)))
def test_a_value_of_an_allowed_type_is_read_as_its_text(where: Where, option: Option) -> None:
    for value in [option.example, *python_values(option)]:
        reader = OptionReader({option.argument: value}, where)
        assert reader.value(option, option.parse) == option.parse(option.example), value
    assert option.argument not in OptionReader({option.argument: None}, where)


@pytest.mark.parametrize(
    ("declared", "wrong", "nearest"),
    [(ClientOptions, "conect_timeout", "connectTimeout"), (ServerOptions, "drain_timout", "drainTimeout")],
)
def test_a_wrong_name_is_still_refused_with_the_nearest_one(declared: Any, wrong: str, nearest: str) -> None:
    with pytest.raises(OptionError, match=f"Did you mean '{nearest}'"):
        declared.parse("localhost:20121", {wrong: "3s"})
