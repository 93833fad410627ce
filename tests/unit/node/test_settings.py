from __future__ import annotations

import json

import pytest

from aeron_spark.errors import OptionError
from aeron_spark.node.settings import (
    KIB,
    MIB,
    NAK_DELAY_NS,
    NAK_PROPERTIES,
    RECEIVE_PROPERTIES,
    SHARED_IDLE,
    TIMER_INTERVAL_NS,
    NodeSettings,
    archive_context,
    differences,
    driver_context,
    parse_settings,
    parse_size,
    settings_from_json,
)


def test_a_driver_on_a_small_machine_has_one_thread() -> None:
    assert parse_settings({}, cores=2) == NodeSettings()
    assert parse_settings({}, cores=2).threading == "shared"
    assert parse_settings({}, cores=4).threading == "dedicated"
    assert parse_settings({"threading": "DEDICATED"}, cores=1).threading == "dedicated"


def test_settings_may_be_texts_or_values() -> None:
    texts = {"term_length": "1m", "max_replays": "20", "linger": "2.5", "sparse": "false", "sync_level": "1"}
    values = {"term_length": MIB, "max_replays": 20, "linger": 2.5, "sparse": False, "sync_level": 1}
    assert parse_settings(texts, 2) == parse_settings(values, 2)
    assert parse_settings(texts, 2).max_replays == 20


def test_settings_survive_json() -> None:
    settings = parse_settings({"properties": {"aeron.b": "2", "aeron.a": "1"}, "control": "[::1]:8010"}, 8)
    assert settings_from_json(json.loads(json.dumps(settings.to_json()))) == settings
    assert settings.properties == (("aeron.a", "1"), ("aeron.b", "2"))


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("64k", 65536), ("16M", 16 * MIB), (" 1g ", 1024 * MIB), (7, 7)])
def test_sizes(text: object, size: int) -> None:
    assert parse_size("term_length", text) == size


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("term_length", "16x", "is not a size"),
        ("term_length", True, "is not a size"),
        ("term_length", "3m", "power of two from 64KiB to 1GiB"),
        ("ipc_term_length", "32k", "power of two"),
        ("segment_length", "2g", "power of two"),
        ("mtu", "100", "multiple of 32 from 1408"),
        ("ipc_mtu", 1409, "multiple of 32"),
        ("threading", "many", "Choose one of shared"),
        ("linger", "-1", "number of seconds"),
        ("linger", "soon", "number of seconds"),
        ("linger", "nan", "number of seconds"),
        ("max_replays", 0, "above 0"),
        ("max_recordings", "1.5", "above 0"),
        ("sync_level", 3, "0, 1 or 2"),
        ("archive", "perhaps", "neither true nor false"),
        ("control", "localhost", "host:port"),
        ("control", "localhost:1|mtu=9", "host:port"),
        ("properties", {"java.home": "/x"}, "not a property of Aeron"),
        ("properties", {"aeron.dir": "/x"}, "Use aeron_dir instead"),
        ("properties", {"aeron.archive.max.concurrent.replays": "3"}, "Use max_replays instead"),
        ("max_replay", 3, "Did you mean 'max_replays'"),
        ("zzz", 3, "Choose from archive"),
    ],
)
def test_the_error_of_a_wrong_setting_names_the_valid_values(name: str, value: object, text: str) -> None:
    with pytest.raises(OptionError, match=text.replace("(", r"\(")):
        parse_settings({name: value}, 2)


def test_a_segment_is_at_least_as_long_as_a_term() -> None:
    settings = parse_settings({"segment_length": "1m", "ipc_term_length": "4m", "term_length": "2m"}, 2)
    assert (settings.segment_length, settings.longest_segment) == (MIB, 4 * MIB)
    context = archive_context(settings, "/a", 1)
    # an archive gives a recording the segments of its setting, or one term if that is longer
    assert (context["segmentFileLength"], context["lowStorageSpaceThreshold"]) == (MIB, 4 * MIB)


def test_only_requested_settings_are_compared() -> None:
    running = parse_settings({"max_replays": 20, "linger": 2}, 2)
    assert differences({}, running) == []
    assert differences({"max_replays": "20", "threading": None}, running) == []
    assert differences({"max_replays": 30, "mtu": 8192}, running) == [
        "max_replays is 20, not 30",
        "mtu is 1408, not 8192",
    ]


def test_requested_properties_must_be_among_those_of_the_running_node() -> None:
    running = parse_settings({"properties": {"aeron.a": "1", "aeron.b": "2"}}, 2)
    assert differences({"properties": {"aeron.a": "1"}}, running) == []
    (found,) = differences({"properties": {"aeron.a": "9"}}, running)
    assert found.startswith("properties is {'aeron.a': '1', 'aeron.b': '2'}")


def test_the_contexts_have_the_settings() -> None:
    settings = parse_settings({"max_replays": 20, "threading": "shared_network", "term_length": "1m"}, 2)
    driver = driver_context(settings, "/dev/shm/x", 2 * MIB)
    assert driver["threadingMode"] == "SHARED_NETWORK"
    assert driver["publicationTermBufferLength"] == MIB
    archive = archive_context(settings, "/a", 7)
    assert (archive["maxConcurrentReplays"], archive["archiveId"], archive["threadingMode"]) == (20, 7, "SHARED")
    assert archive["controlChannelEnabled"] is False
    assert "controlChannel" not in archive


def test_the_only_thread_polls_rarely_unless_a_property_sets_its_idle_strategy() -> None:
    driver = driver_context(parse_settings({}, 2), "/dev/shm/x", 2 * MIB)
    assert driver["sharedIdleStrategy"] == SHARED_IDLE
    assert driver["timerIntervalNs"] == TIMER_INTERVAL_NS
    assert "sharedIdleStrategy" not in driver_context(parse_settings({}, 4), "/dev/shm/x", 2 * MIB)
    own = {"aeron.timer.interval": "1s", "aeron.shared.idle.strategy": "yield"}
    driver = driver_context(parse_settings({"properties": own}, 2), "/dev/shm/x", 2 * MIB)
    assert not {"sharedIdleStrategy", "timerIntervalNs"} & set(driver)


@pytest.mark.parametrize(
    ("granted", "window"), [(8 * MIB, MIB), (3 * MIB, MIB), (2 * MIB, 2 * MIB // 3), (208 * KIB, 208 * KIB // 3)]
)
def test_three_receive_windows_fit_the_granted_buffer_of_a_socket(granted: int, window: int) -> None:
    driver = driver_context(parse_settings({}, 2), "/dev/shm/x", granted)
    assert (driver["socketRcvbufLength"], driver["initialWindowLength"]) == (granted, window)


@pytest.mark.parametrize("name", RECEIVE_PROPERTIES)
def test_a_property_of_receive_buffer_or_window_leaves_both_to_aeron(name: str) -> None:
    driver = driver_context(parse_settings({"properties": {name: "1m"}}, 2), "/dev/shm/x", 2 * MIB)
    assert not {"socketRcvbufLength", "initialWindowLength"} & set(driver)


def test_a_nak_is_repeated_after_the_time_in_which_a_sender_ignores_it() -> None:
    driver = driver_context(parse_settings({}, 2), "/dev/shm/x", 2 * MIB)
    assert driver["nakUnicastDelayNs"] == NAK_DELAY_NS
    ratio, ignored_ns = 100, 10_000_000  # Aeron's nak.unicast.retry.delay.ratio and retransmit.unicast.linger
    assert NAK_DELAY_NS * ratio > ignored_ns


@pytest.mark.parametrize("name", NAK_PROPERTIES)
def test_a_property_of_nak_delays_leaves_them_to_aeron(name: str) -> None:
    driver = driver_context(parse_settings({"properties": {name: "50"}}, 2), "/dev/shm/x", 2 * MIB)
    assert "nakUnicastDelayNs" not in driver


def test_a_control_endpoint_opens_a_control_channel() -> None:
    archive = archive_context(parse_settings({"control": "localhost:8010"}, 2), "/a", 7)
    assert archive["controlChannel"] == "aeron:udp?endpoint=localhost:8010"
    assert archive["controlChannelEnabled"] is True


def test_a_node_without_an_archive_has_none() -> None:
    assert archive_context(parse_settings({"archive": False}, 2), "/a", 7) is None
