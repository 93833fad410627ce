"""A client in another language can build each request from ``docs/stream-requests.json`` alone."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeron_spark.errors import ERROR_CLASSES, REFUSALS, RefusedError
from aeron_spark.wire.stream_requests import METHOD, OPERATIONS, SERVICE, decode_request
from tests.programs import ROOT
from tools.stream_request_page import stream_request_file

TEXT: Final = (ROOT / "docs" / "stream-requests.json").read_text(encoding="utf-8")
FILE: Final[dict[str, Any]] = json.loads(TEXT)
STRUCTS: Final = {one["name"]: one for one in FILE["structs"]}


def values_of(kind: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a type of the file, within its bounds."""
    longest = min(kind.get("longest", 20), 20)
    match kind["kind"]:
        case "text":
            return st.text(max_size=longest)
        case "bytes":
            return st.binary(max_size=longest)
        case "integer":
            return st.integers(kind["minimum"], kind.get("maximum", 2**64 - 1))
        case "float":
            return st.floats(kind["minimum"], kind["maximum"])
        case "boolean":
            return st.booleans()
        case "nil":
            return st.none()
        case "array":
            return st.lists(values_of(kind["items"]), max_size=min(longest, 3))
        case "tuple":
            return st.tuples(*map(values_of, kind["items"])).map(list)
        case "one of":
            return st.one_of(*map(values_of, kind["types"]))
        case other:
            assert other == "struct"
            return maps_of(STRUCTS[kind["struct"]])


def maps_of(struct: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for the maps of a struct; one may leave out fields with a default."""
    fields = {one["name"]: values_of(one) for one in struct["fields"]}
    optional = {one["name"] for one in struct["fields"] if "default" in one}
    tag = {} if struct["type"] is None else {"type": st.just(struct["type"])}
    required = tag | {name: values for name, values in fields.items() if name not in optional}
    return st.fixed_dictionaries(required, optional={name: fields[name] for name in optional})


def with_defaults(kind: dict[str, Any], value: Any) -> Any:
    """Return a value that was sent, with the defaults of the fields that it leaves out."""
    match kind["kind"]:
        case "struct":
            return complete(STRUCTS[kind["struct"]], value)
        case "array":
            return [with_defaults(kind["items"], one) for one in value]
        case "one of" if isinstance(value, dict):
            chosen = (STRUCTS[one["struct"]] for one in kind["types"] if one["kind"] == "struct")
            return complete(next(one for one in chosen if one["type"] == value["type"]), value)
        case _:
            return value


def complete(struct: dict[str, Any], sent: dict[str, Any]) -> dict[str, Any]:
    tag = {} if struct["type"] is None else {"type": struct["type"]}
    return tag | {one["name"]: _value_of(one, sent) for one in struct["fields"]}


def _value_of(field: dict[str, Any], sent: dict[str, Any]) -> Any:
    if field["name"] in sent:
        return with_defaults(field, sent[field["name"]])
    return field["default"].encode() if field["kind"] == "bytes" else field["default"]


def test_the_file_is_the_one_of_the_table() -> None:
    assert stream_request_file() == TEXT
    assert (FILE["service"], FILE["method"]) == (SERVICE, METHOD)


@pytest.mark.parametrize("described", FILE["requests"], ids=lambda one: one["name"])
@settings(max_examples=25)
@given(data=st.data())
def test_a_request_that_is_built_from_the_file_is_decoded_with_its_values(
    described: dict[str, Any], data: st.DataObject
) -> None:
    sent = data.draw(maps_of(described))
    decoded = decode_request(msgspec.msgpack.encode(sent))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(decoded)) == complete(described, sent)


def test_the_file_has_each_operation_with_its_rules_and_the_response_that_it_names() -> None:
    responses = {one["name"] for one in FILE["responses"]}
    described = {one["type"]: one for one in FILE["requests"]}
    for kind, operation in OPERATIONS.items():
        found = described.pop(kind.__struct_config__.tag)
        assert found["response"] in responses
        assert (tuple(found["actions"]), found["event"] or "") == (operation.actions, operation.event)
        assert (found["begins"], found["writes"]) == (operation.begins, operation.writes)
    assert described == {}


def test_the_file_has_each_code_of_an_error_and_each_reason_of_a_refusal() -> None:
    assert {one["code"]: one["retriable"] for one in FILE["errors"]} == {
        code: kind("").retriable for code, kind in ERROR_CLASSES.items()
    }
    for reason, retry in FILE["reasons"].items():
        assert (retry != "never") is RefusedError("", reason=reason).retriable
    assert FILE["reasons"].keys() == REFUSALS.keys()
