"""Requests and responses of the stream service are decoded as they were encoded; other bytes are refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from aeron_spark.errors import DataFormatError, DataLossError, OptionError, RefusedError, StillWorking
from aeron_spark.protocol.rpc_messages import FIRST_SERVICE
from aeron_spark.protocol.rpc_objects import LAST_OBJECT_ID
from aeron_spark.wire import stream_requests
from aeron_spark.wire.bulk_messages import BulkMessageKind, decode_bulk_message, encode_bulk_head
from aeron_spark.wire.field_bounds import longest_encoding
from aeron_spark.wire.stream_requests import (
    OPERATIONS,
    RESPONSES,
    Committed,
    CommitTransaction,
    CreateStream,
    DeleteStream,
    Failure,
    FinishStage,
    LastCommitted,
    LastTransaction,
    MeasureLags,
    RenewLease,
    Request,
    StagedPart,
    StreamRequest,
    Transaction,
    decode_head,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    failure_of,
    operation,
)
from tests.unit.wire import stream_vectors
from tools.stream_request_page import stream_request_page

REQUESTS: Final[tuple[type[Request[Any]], ...]] = tuple(OPERATIONS)
SIMPLE: Final[dict[object, st.SearchStrategy[Any]]] = {
    int: st.integers(-(2**63), 2**64 - 1),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
    float: st.floats(min_value=0),
    type(None): st.none(),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a field of this type."""
    if kind in SIMPLE:
        return SIMPLE[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structs_of(kind)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bounds = inner[1]
        if inner[0] is float:
            return st.floats(bounds.ge, bounds.le)
        return st.integers(bounds.ge, bounds.le or 2**64 - 1) if inner[0] is int else values_of(inner[0])
    if origin in (Union, UnionType):
        return st.one_of(*map(values_of, inner))
    assert origin is tuple, kind
    if inner[-1] is Ellipsis:
        return st.lists(values_of(inner[0]), max_size=3).map(tuple)
    return st.tuples(*map(values_of, inner))


def structs_of(cls: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls, localns={"bytes": bytes}, include_extras=True)
    return st.builds(cls, **{field.name: values_of(hints[field.name]) for field in msgspec.structs.fields(cls)})


def test_the_service_number_differs_from_those_of_other_releases() -> None:
    assert FIRST_SERVICE + 1 < stream_requests.SERVICE <= LAST_OBJECT_ID


def test_a_request_about_a_stream_names_an_action_and_no_other_request_does() -> None:
    """A request without an action would be executed for each key."""
    for actions, base in (((), StreamRequest), (("read",), Request)):
        kind: Any = msgspec.defstruct("Wrong", [], bases=(base,), frozen=True, tag="wrong")
        with pytest.raises(TypeError, match="Wrong must have a stream and actions, or neither"):
            operation(*actions)(kind)  # type: ignore[arg-type]
        assert kind not in OPERATIONS


def test_the_page_of_the_requests_is_the_one_of_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "stream-requests.md"
    assert page.read_text(encoding="utf-8") == stream_request_page()


@pytest.mark.parametrize("cls", REQUESTS)
@settings(max_examples=25)
@given(data=st.data())
def test_a_request_is_decoded_as_it_was_encoded(cls: type[Request[Any]], data: st.DataObject) -> None:
    request = data.draw(structs_of(cls))
    assert decode_request(encode_request(request)) == request


@pytest.mark.parametrize("cls", REQUESTS)
@settings(max_examples=25)
@given(data=st.data())
def test_a_response_is_decoded_as_it_was_encoded_and_only_for_its_request(
    cls: type[Request[Any]], data: st.DataObject
) -> None:
    request, response = data.draw(structs_of(cls)), data.draw(structs_of(OPERATIONS[cls].response))
    encoded = encode_response(response)
    assert decode_response(request, encoded) == response
    other = data.draw(st.sampled_from([one for one in RESPONSES if one not in (OPERATIONS[cls].response, Failure)]))
    with pytest.raises(DataFormatError, match=rf"responded to {cls.__name__} with {other.__name__}, expected"):
        decode_response(request, encode_response(data.draw(structs_of(other))))


@given(st.binary(max_size=200))
def test_other_bytes_are_neither_a_request_nor_a_response(data: bytes) -> None:
    with pytest.raises(DataFormatError, match="these bytes are not a request to the stream service"):
        decode_request(data)
    with pytest.raises(DataFormatError, match="these bytes are not a response of the stream service"):
        decode_response(DeleteStream("s"), data)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"type": "drop-everything", "stream": "s"}, "Invalid value 'drop-everything' - at `$.type`"),
        ({"stream": "s"}, "missing required field `type`"),
        ({"type": "delete"}, "missing required field `stream`"),
        ({"type": "delete", "stream": "s", "now": True}, "unknown field `now`"),
        ({"type": "delete", "stream": 1}, "Expected `str`, got `int`"),
        ({"type": "finish-stage", "stream": "s", "stage": "1", "size": 0, "seconds": -1.0}, "`float` >= 0.0"),
        ({"type": "finish-stage", "stream": "s", "stage": "1", "size": 0, "seconds": float("nan")}, "`float` >= 0.0"),
        ([], "Expected `object`, got `array`"),
    ],
)
def test_an_invalid_request_is_refused_with_the_reason(fields: object, reason: str) -> None:
    with pytest.raises(DataFormatError, match=r"Use the same release") as caught:
        decode_request(msgspec.msgpack.encode(fields))
    assert reason in str(caught.value)


def parts_of(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yield a type and all types within it."""
    yield kind
    inner = [getattr(kind, name) for name in ("type", "item_type", "key_type", "value_type") if hasattr(kind, name)]
    inner += [*getattr(kind, "types", ()), *getattr(kind, "item_types", ())]
    for one in (*inner, *(field.type for field in getattr(kind, "fields", ()))):
        yield from parts_of(one)


@pytest.mark.parametrize("cls", REQUESTS)
def test_each_text_and_list_of_a_request_has_a_bound_and_no_request_has_a_map(cls: type[Request[Any]]) -> None:
    """A client must not choose keys that collide, nor values that cost the server more than a request may."""
    longest = (inspect.StrType, inspect.BytesType, inspect.VarTupleType)
    small = (inspect.NoneType, inspect.BoolType, inspect.FloatType)
    containers = (inspect.StructType, inspect.TupleType, inspect.UnionType, inspect.Metadata)
    for one in parts_of(inspect.type_info(cls)):
        assert isinstance(one, (*longest, *small, *containers, inspect.IntType)), one
        if isinstance(one, longest):
            assert one.max_length is not None, one
        if isinstance(one, inspect.IntType):  # a number of more than 64 bits does not fit into a record
            assert one.ge is not None, one


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (DeleteStream("s" * 129), "its stream has a length of 129, the limit is 128"),
        (RenewLease("s", "r" * 256, (), 1.0), "its reader has a length of 256, the limit is 255"),
        (MeasureLags("s", ((0, 0),) * 10_001), "its positions has a length of 10001, the limit is 10000"),
        (CreateStream("s", 1, 2**63, 0.0, 0), "its retention_bytes is 9223372036854775808, expected a number from"),
    ],
)
def test_a_value_beyond_its_bound_is_neither_sent_nor_taken(wrong: Request[Any], reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        encode_request(wrong)
    assert reason in str(caught.value)
    with pytest.raises(DataFormatError, match="these bytes are not a request"):
        decode_request(msgspec.msgpack.encode(wrong))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"type": "t" * 2_000, "stream": "s"}, "2003 bytes - at `$.type`"),
        ({"type": "delete", "stream": "s" * 2_000}, "2003 bytes - at `$.stream`"),
        ({"type": "release-lease", "stream": "s", "reader": "r" * 10_000}, "ReleaseLease has at most "),
    ],
)
def test_a_long_request_is_refused_before_its_texts_are_copied(fields: object, reason: str) -> None:
    """The copy of a text of 15 MB takes 6 to 25 ms, in which no other thread of the server runs Python."""
    with pytest.raises(DataFormatError, match="these bytes are not a request") as caught:
        decode_request(msgspec.msgpack.encode(fields))
    assert reason in str(caught.value)


def test_each_field_of_each_request_has_a_bound() -> None:
    """The bounds are read at the first use of a class: without this test a user would find a missing one."""
    assert all(longest_encoding(request) > 0 for request in stream_requests.OPERATIONS)


def test_a_request_with_the_largest_values_is_taken() -> None:
    largest = RenewLease("😀" * 128, "😀" * 255, ((2**63 - 1, 2**63 - 1),) * 10_000, 1e9)
    data = encode_request(largest)
    most = longest_encoding(RenewLease)
    assert most - 50_000 < len(data) <= most
    assert decode_request(data) == largest


def test_the_class_and_the_stream_of_a_request_are_decoded_without_its_other_fields() -> None:
    """Keys that collide make a map of n keys cost n² steps: nothing is decoded before the grant is checked."""
    colliding = {(5 * number + 1) % 2**63: 0 for number in range(10)}
    head = decode_head(
        msgspec.msgpack.encode({"stream": "prices", "positions": colliding, "type": "measure-lags", "more": [[[]]]})
    )
    assert (head.kind, head.stream) == (MeasureLags, "prices")
    with pytest.raises(DataFormatError, match=r"unknown field `more`|Expected `array`, got `object`"):
        head.decode()


def test_incomplete_bytes_and_trailing_bytes_are_not_decoded_as_a_request() -> None:
    whole = encode_request(CommitTransaction("s", Transaction("w", "r", 0), (StagedPart("1", 2, 3, 4),), 2, 1.0))
    assert isinstance(decode_request(whole), CommitTransaction)
    for end in range(len(whole)):
        with pytest.raises(DataFormatError):
            decode_request(whole[:end])
    with pytest.raises(DataFormatError, match="trailing"):
        decode_request(whole + b"\x00")


@pytest.mark.parametrize("wrong", [CreateStream("s", 1, 2**64, 0.0, 0), DeleteStream("\ud800")])
def test_a_request_that_cannot_be_encoded_is_refused(wrong: Request[Any]) -> None:
    with pytest.raises(OptionError, match=f"{type(wrong).__name__} cannot be sent"):
        encode_request(wrong)


@pytest.mark.parametrize(
    "error",
    [
        RefusedError("the server is full", remedy="Close some connections.", reason="full"),
        StillWorking("the commit is still running", remedy="Send the request again."),
        DataLossError("gone", reason="diverged"),
    ],
)
def test_a_failure_raises_the_error_that_the_server_had(error: Any) -> None:
    with pytest.raises(type(error)) as caught:
        decode_response(DeleteStream("s"), encode_response(failure_of(error)))
    found = caught.value
    assert (type(found), found.what, found.remedy) == (type(error), error.what, error.remedy)
    assert (found.reason, found.retriable) == (error.reason, error.retriable)


def test_a_failure_whose_error_cannot_be_decoded_is_a_format_error() -> None:
    with pytest.raises(DataFormatError, match="not an encoded error"):
        decode_response(DeleteStream("s"), encode_response(Failure(b"?")))


def test_a_staged_part_can_be_pickled_as_spark_does() -> None:
    part = StagedPart("1", 2, 3, 4)
    assert pickle.loads(pickle.dumps(part)) == part


def test_threads_can_decode_at_the_same_time() -> None:
    request, response = encode_request(LastTransaction("s", "w", "")), encode_response(LastCommitted(7, ""))
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(
                lambda _: (decode_request(request), decode_response(LastTransaction("s", "w", ""), response)),
                range(500),
            )
        )
    assert set(found) == {(LastTransaction("s", "w", ""), LastCommitted(7, ""))}


# The complete bytes of a request and a response. They change only together with the number of the service.
FINISH: Final = bytes.fromhex(
    "85"
    " a474797065 ac66696e6973682d7374616765"  # type: finish-stage
    " a673747265616d a173"  # stream: s
    " a57374616765 a161"  # stage: a
    " a473697a65 cd0100"  # size: 256
    " a77365636f6e6473 cb3ff8000000000000"  # seconds: 1.5
)
COMMITTED: Final = bytes.fromhex(
    "84"
    " a474797065 a9636f6d6d6974746564"  # type: committed
    " a87265706561746564 c3"  # repeated: true
    " a4656e6473 920040"  # ends: 0, 64
    " a57374616d70 a0"  # stamp: ""
)


def test_the_vectors_have_an_example_of_each_class_without_a_default() -> None:
    examples = (*stream_vectors.REQUESTS, *stream_vectors.RESPONSES)
    assert {type(one) for one in examples} == {*REQUESTS, *RESPONSES}
    for one in examples:
        for field in msgspec.structs.fields(one):
            assert getattr(one, field.name) != field.default, (type(one), field.name)


def test_the_examples_have_the_bytes_of_the_vectors() -> None:
    found = json.loads(stream_vectors.FILE.read_text())
    assert stream_vectors.vectors() == found
    for request in stream_vectors.REQUESTS:
        assert decode_request(bytes.fromhex(found["requests"][stream_vectors.tag_of(request)])) == request


def test_the_bytes_of_a_request_and_of_a_response() -> None:
    assert encode_request(FinishStage("s", "a", 256, 1.5)) == FINISH
    assert encode_response(Committed(True, (0, 64), "")) == COMMITTED
    assert decode_request(FINISH) == FinishStage("s", "a", 256, 1.5)


MESSAGE: Final = bytes.fromhex("07000000 04 000000 0001000000000000 616263")  # request 7, STAGE, position 256, abc


def test_a_bulk_message_consists_of_head_and_payload() -> None:
    assert encode_bulk_head(7, BulkMessageKind.STAGE, 256) + b"abc" == MESSAGE
    found = decode_bulk_message(memoryview(MESSAGE))
    assert (found.request, found.kind, found.position) == (7, BulkMessageKind.STAGE, 256)
    assert found.payload == b"abc"


@given(st.integers(0, 2**40), st.sampled_from(BulkMessageKind), st.integers(0, 2**63 - 1), st.binary(max_size=50))
def test_a_bulk_message_is_decoded_as_it_was_encoded(
    request: int, kind: BulkMessageKind, position: int, payload: bytes
) -> None:
    found = decode_bulk_message(memoryview(encode_bulk_head(request, kind, position) + payload))
    assert (found.request, found.kind, found.position) == (request % 2**32, kind, position)
    assert found.payload == payload


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (MESSAGE[:15], "it has 15 bytes, expected at least 16"),
        (b"", "it has 0 bytes"),
        (MESSAGE[:4] + b"\x09" + MESSAGE[5:], "it has kind 9 and position 256"),
        (MESSAGE[:15] + b"\x80" + MESSAGE[16:], "it has kind 4 and position -"),
    ],
)
def test_other_bytes_are_not_a_bulk_message(data: bytes, reason: str) -> None:
    with pytest.raises(DataFormatError, match=reason):
        decode_bulk_message(memoryview(data))
