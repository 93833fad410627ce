"""OptionReader finds options by name, and refuses names that are unknown, misplaced, empty or repeated."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.options.declaration import (
    ENDPOINT,
    EVERYWHERE,
    Format,
    OptionReader,
    Where,
    all_options,
    has_batch_only_options,
)
from aeron_spark.protocol.sources import Network
from tests.jvm_options import format_of


def refused(options: dict[str, object], where: Where = Where.READ_STREAM, spark_format: Format = Format.AERON) -> str:
    with pytest.raises(OptionError) as caught:
        OptionReader(options, where, spark_format)
    assert caught.value.remedy
    return str(caught.value)


def test_names_are_case_insensitive() -> None:
    reader = OptionReader({"STREAMid": " 7 "}, Where.READ_STREAM)
    assert value(reader, "streamId") == 7
    assert names(reader) == ["streamId"]
    assert "streamId" in reader
    assert "channel" not in reader


@pytest.mark.parametrize(
    "name", ["checkpointLocation", "queryName", "path", "outputmode", "_asyncProgressTracking", "__x", "spark.sql.x"]
)
def test_options_of_spark_itself_are_ignored(name: str) -> None:
    for where in EVERYWHERE:
        if name != "checkpointLocation" or where in (Where.WRITE_STREAM, Where.WRITE_BATCH):
            assert OptionReader({name: "anything"}, where).given_options() == ()
    for where in ENDPOINT:
        refused({name: "anything"}, where)


@pytest.mark.parametrize("where", [Where.READ_STREAM, Where.READ_BATCH])
def test_a_checkpoint_of_a_reader_is_refused(where: Where) -> None:
    """Regression: it was accepted and ignored, so that the query had no checkpoint."""
    with pytest.raises(OptionError, match="'checkpointLocation' has no effect on reading"):
        OptionReader({"checkpointLocation": "/data/checkpoint"}, where)


def misspelt(name: str) -> list[str]:
    return [name[:-1], name + "s", name[1:], name[:2] + name[3:], name[0] + name[2] + name[1] + name[3:]]


def value(reader: OptionReader, name: str) -> object:
    option = reader.option(name)
    return reader.value(option, option.parse)


def names(reader: OptionReader) -> list[str]:
    return [option.name for option in reader.given_options()]


NAMES = sorted({option.name for option in all_options()})


@pytest.mark.parametrize("name", NAMES)
def test_the_error_for_a_misspelt_option_suggests_the_right_name(name: str) -> None:
    known = {one.lower() for one in NAMES}
    option = next(one for one in all_options() if one.name == name)
    where = next(one for one in Where if one in option.where)
    for wrong in misspelt(name):
        if wrong.lower() in known:
            continue
        assert refused({wrong: "x"}, where, format_of(option)).startswith(f"unknown option '{wrong}'. Did you mean '")
    assert f"Did you mean '{name}'?" in refused({name[:-1] + "_" + name[-1]: "x"}, where, format_of(option))


def test_the_error_for_an_unknown_name_lists_the_options_of_the_place() -> None:
    error = refused({"zzzzzzzz": "x"}, Where.WRITE_BATCH)
    assert "The options are: ack, aeronDir, archive" in error
    assert "startingOffsets" not in error


@pytest.mark.parametrize(
    ("name", "where", "sentence"),
    [
        ("startingOffsets", Where.WRITE_STREAM, "'startingOffsets' is only for reading, not for writing"),
        ("endPosition", Where.WRITE_BATCH, "'endPosition' is only for reading, not for writing"),
        ("ack", Where.READ_BATCH, "'ack' is only for writing, not for reading"),
        ("writerid", Where.READ_STREAM, "'writerId' is only for writing, not for reading"),
        ("tag", Where.SERVER, "'tag' is only for a client, not for a server"),
        ("max_connections", Where.CLIENT, "'maxConnections' is only for a server, not for a client"),
        ("endingOffsets", Where.READ_STREAM, "'endingOffsets' is only for batch reads (spark.read), not for"),
    ],
)
def test_the_error_for_a_misplaced_option_names_its_place(name: str, where: Where, sentence: str) -> None:
    assert sentence in refused({name: "1"}, where)


@pytest.mark.parametrize("where", sorted(EVERYWHERE, key=lambda one: one.value))
def test_client_options_in_spark_are_stored_separately(where: Where) -> None:
    reader = OptionReader({"TAG": " desk-7 ", "mtu": "8k", "stream": "flights"}, where)
    assert names(reader) == ["stream"]
    assert reader.client_options() == (("mtu", "8k"), ("tag", "desk-7"))
    assert "given twice" in refused({"tag": "a", "Tag": "b"}, where)
    assert refused({"tag": ""}, where) == "option 'tag' has no value. For example .option('tag', 'desk-7')"
    assert "Did you mean 'pingTimeout'?" in refused({"pingTimeut": "1s"}, where)


@pytest.mark.parametrize("name", ["maxConnections", "mdcPorts"])
def test_a_server_option_is_refused_in_spark(name: str) -> None:
    assert f"option '{name}' is only for a server, not for a client" in refused({name: "1"})


def test_values_of_programs_and_files_are_read_as_texts() -> None:
    reader = OptionReader(
        {"exempt_loopback": True, "max_connections": 7, "handshakesPerSecond": 0.5, "allow": ["10.0.0.0/8", "::1"]},
        Where.SERVER,
    )
    assert value(reader, "exemptLoopback")
    assert value(reader, "maxConnections") == 7
    assert value(reader, "handshakesPerSecond") == 0.5
    assert value(reader, "allow") == (Network.parse("10.0.0.0/8"), Network.parse("::1"))
    assert value(reader, "deny") is None


def test_two_spellings_of_an_option_are_the_same_option() -> None:
    assert "given twice" in refused({"maxPending": 1, "max_pending": 2}, Where.SERVER)


def test_an_option_without_a_value_is_refused() -> None:
    assert refused({"channel": "  "}).startswith(
        "option 'channel' has no value. For example .option('channel', 'aeron:"
    )
    assert OptionReader({"channel": None}, Where.READ_STREAM).given_options() == ()


def test_an_option_given_twice_with_different_values_is_refused() -> None:
    assert "given twice" in refused({"streamId": "1", "STREAMID": "2"})
    assert value(OptionReader({"streamId": "1", "STREAMID": "1"}, Where.READ_STREAM), "streamId") == 1


def test_an_example_is_quoted_for_pasting() -> None:
    with pytest.raises(OptionError, match=r"For example \.option\('endingOffsets', '\{\"embedded/7\": 8192\}'\)"):
        value(OptionReader({"endingOffsets": "?"}, Where.READ_BATCH), "endingOffsets")


def test_a_long_wrong_value_is_shortened() -> None:
    with pytest.raises(OptionError) as caught:
        value(OptionReader({"streamId": "9" * 5000}, Where.READ_STREAM), "streamId")
    assert len(str(caught.value)) < 400


def test_a_response_channel_is_a_channel_or_the_word_response() -> None:
    reader = OptionReader({"responseChannel": "RESPONSE", "replayChannel": "aeron:udp?endpoint=h:0"}, Where.READ_STREAM)
    assert value(reader, "responseChannel") == "response"
    assert value(reader, "replayChannel") == "aeron:udp?endpoint=h:0"


def test_each_archive_is_checked() -> None:
    text = "Embedded,aeron:udp?endpoint=h:8010"
    reader = OptionReader({"archive": text}, Where.READ_STREAM)
    assert value(reader, "archive") == ("embedded", "aeron:udp?endpoint=h:8010")
    with pytest.raises(OptionError, match="option 'archive': the channel 'aeron:upd"):
        value(OptionReader({"archive": "embedded,aeron:upd?endpoint=h:8010"}, Where.READ_STREAM), "archive")


def test_has_batch_only_options_finds_options_of_batch_reads() -> None:
    assert has_batch_only_options(["channel", "ENDINGOFFSETS"])
    assert not has_batch_only_options(["channel", "startingOffsets", "maxRowsPerTrigger", "ack", "nonsense"])
