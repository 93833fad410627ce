"""A reader may name several streams: a list, or on the route through a server names and patterns."""

from __future__ import annotations

from typing import Final

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options import DirectRoute, ReadOptions, ServerRoute, WriteOptions, direct_route
from aeron_spark.transport.channel import ARCHIVE_STREAMS

DIRECT: Final = {"channel": "aeron:udp?endpoint=127.0.0.1:40123"}
SERVER: Final = {"server": "feeds:20121", "serverKey": "aeron-spark:CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}


def route(options: dict[str, str], streaming: bool = True) -> DirectRoute | ServerRoute:
    return ReadOptions.parse(options, streaming=streaming).route


@pytest.mark.parametrize("streaming", [True, False])
def test_several_stream_ids_are_separated_by_commas(streaming: bool) -> None:
    found = route({**DIRECT, "streamId": "1001, -7,1002"}, streaming)
    assert isinstance(found, DirectRoute)
    assert (found.several, found.stream_id, found.stream_column) == (("1001", "-7", "1002"), 1001, "streamId")
    assert found.label == "streams 1001, -7, 1002 of aeron:udp?endpoint=127.0.0.1:40123"
    assert found.of_one("1002") == route({**DIRECT, "streamId": "1002"}, streaming)


def test_one_stream_id_and_one_name_are_no_list() -> None:
    for one in (route({**DIRECT, "streamId": "1001"}), route({**SERVER, "stream": "prices.eu"})):
        assert (one.several, one.stream_column) == ((), None)


@pytest.mark.parametrize(
    ("text", "several"),
    [
        ("prices,trades", ("prices", "trades")),
        ("prices.*", ("prices.*",)),
        ("prices.??, trades", ("prices.??", "trades")),
        ("[a-c]*", ("[a-c]*",)),
        ("*", ("*",)),
    ],
)
def test_names_and_patterns_of_streams(text: str, several: tuple[str, ...]) -> None:
    found = route({**SERVER, "stream": text})
    assert isinstance(found, ServerRoute)
    assert (found.several, found.stream, found.stream_column) == (several, ",".join(several), "stream")
    assert found.label == f"streams '{','.join(several)}' of feeds:20121"
    assert found.of_one("prices").label == "stream 'prices' of feeds:20121"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({**DIRECT, "streamId": "1001,x"}, "'streamId' must be Aeron stream ids"),
        ({**DIRECT, "streamId": "1001,"}, "'streamId' must be Aeron stream ids"),
        ({**DIRECT, "streamId": "1,1"}, "'streamId' must be streams without repetition"),
        ({**DIRECT, "streamId": "1001,99999999999"}, "'streamId' must be Aeron stream ids"),
        ({**SERVER, "stream": "prices,"}, "'stream' must be names of streams"),
        ({**SERVER, "stream": "prices/*"}, "'stream' must be names of streams"),
        ({**SERVER, "stream": "prices|trades"}, "'stream' must be the name of a stream"),
        ({**SERVER, "stream": "a,a"}, "'stream' must be streams without repetition"),
    ],
)
def test_a_wrong_list_is_refused(options: dict[str, str], what: str) -> None:
    with pytest.raises(OptionError) as caught:
        route(options)
    assert what in caught.value.what


@pytest.mark.parametrize("options", [{**DIRECT, "streamId": "1,2"}, {**SERVER, "stream": "prices,trades"}])
@pytest.mark.parametrize("streaming", [True, False])
def test_a_writer_has_one_stream(options: dict[str, str], streaming: bool) -> None:
    with pytest.raises(OptionError, match=r"option .stream(Id)?. must be"):
        WriteOptions.parse(options, streaming=streaming)


def test_a_command_for_one_stream_refuses_several() -> None:
    with pytest.raises(OptionError, match="option 'streamId' names 2 streams, expected one"):
        direct_route(route({**DIRECT, "streamId": "1,2"}))


def test_each_id_of_a_list_is_compared_with_those_of_an_archives_control_streams() -> None:
    channel = str(ARCHIVE_STREAMS[0][0])
    with pytest.raises(OptionError, match="is a control stream of an Aeron Archive"):
        route({"channel": channel, "streamId": f"1001,{ARCHIVE_STREAMS[0][1]}"})


def test_positions_are_named_by_stream() -> None:
    options = ReadOptions.parse(
        {
            **SERVER,
            "stream": "prices,trades",
            "startingOffsets": '{"prices/0": 64, "prices/1": "latest", "trades/0": 32}',
        },
        streaming=True,
    )
    assert options.starting_offsets.named == {"prices/0": 64, "prices/1": "latest", "trades/0": 32}
