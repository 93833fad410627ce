"""Options that clients and servers share: their defaults, groups and conflicts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from aeron_spark.errors import OptionError, SetupError
from aeron_spark.keys.key_files import read_shared_secret
from aeron_spark.options import ClientOptions, ServerOptions
from aeron_spark.options.endpoint_options import MIN_MESSAGE_BYTES, RECORD_BYTES
from aeron_spark.protocol.frame_cipher import OVERHEAD_BYTES, CipherLimits
from aeron_spark.protocol.frames import FRAME_HEAD, RECORD_HEAD
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.noise import derive_psk
from aeron_spark.protocol.rpc_dispatch import CallLimits
from aeron_spark.protocol.session import SessionLimits
from aeron_spark.transport.api import ChannelSettings

Parse = type[ClientOptions] | type[ServerOptions]
BOTH = pytest.mark.parametrize("kind", [ServerOptions, ClientOptions])


def parsed(options: dict[str, object], kind: Parse = ServerOptions) -> ClientOptions | ServerOptions:
    return kind.parse("", options)


def refused(options: dict[str, object], kind: Parse = ServerOptions) -> str:
    with pytest.raises(OptionError) as caught:
        parsed(options, kind)
    assert caught.value.remedy
    return str(caught.value)


@BOTH
def test_the_defaults_of_options_and_of_their_groups_are_equal(kind: Parse) -> None:
    options = parsed({}, kind)
    assert options.times == Times(measures_round_trip=kind is ServerOptions)
    assert options.session_limits == SessionLimits(max_record_bytes=RECORD_BYTES)
    assert (options.channel, options.key_limits) == (ChannelSettings(), CipherLimits())
    assert options.call_limits == CallLimits(response_bytes=options.memory_limit // 4)
    assert options.spill_folder == Path(tempfile.gettempdir())


@BOTH
def test_each_option_sets_its_field_or_group(kind: Parse) -> None:
    options = parsed(
        {
            "expiry": "6s", "linger": 0, "sessionTimeout": "5m", "setupTimeout": "7s", "keepAlive": "8s",
            "pingTimeout": "9s", "sendTimeout": "11s", "closeTimeout": "12s", "buffering": False,
            "bufferBytes": "1m", "bufferTime": "13s", "queueBytes": "2m", "maxTransfers": 3, "transferMemory": "4m",
            "transferMemoryTotal": "5m", "transferDiskTotal": "6m", "spillDir": "/var/tmp", "maxCalls": 14,
            "maxRunning": 15, "maxObjects": 16, "workers": 17, "maxTampered": 18, "tamperedTime": "19s",
            "mtu": "8k", "termLength": "4m", "maxMessage": "256k", "reliable": False,
        },
        kind,
    )  # fmt: skip
    times, session, channel = options.times, options.session_limits, options.channel
    assert (times.expiry_seconds, times.linger_seconds, times.retention_seconds) == (6, 0, 300)
    assert (times.setup_seconds, times.keep_alive_seconds, times.ping_seconds) == (7, 8, 9)
    assert (options.send_timeout, options.close_timeout, options.queue_bytes) == (11, 12, 2 << 20)
    assert (session.buffering, session.buffer_bytes) == (False, 1 << 20)
    assert (session.buffer_seconds, session.retention_seconds) == (13, 300)
    assert (options.max_transfers, options.transfer_memory) == (3, 4 << 20)
    assert (options.transfer_memory_total, options.transfer_disk_total) == (5 << 20, 6 << 20)
    assert options.spill_folder == Path("/var/tmp")
    assert (options.max_calls, options.call_limits.running, options.max_objects, options.workers) == (14, 15, 16, 17)
    assert (options.max_tampered, options.tampered_time) == (18, 19)
    assert (channel.mtu_bytes, channel.term_bytes, channel.max_message) == (8192, 4 << 20, 256 << 10)
    assert not channel.reliable


def test_the_buffer_time_is_the_session_timeout_by_default() -> None:
    assert parsed({"sessionTimeout": "10m"}, ClientOptions).session_limits.buffer_seconds == 600


@BOTH
@pytest.mark.parametrize("timeout", ["30", "59.9s", "1s"])
def test_row_56_a_session_timeout_below_a_minute_is_refused(timeout: str, kind: Parse) -> None:
    assert "option 'sessionTimeout' is" in refused({"sessionTimeout": timeout}, kind)
    assert parsed({"sessionTimeout": "60s"}, kind).times.retention_seconds == 60


def test_row_56_a_session_timeout_shorter_than_the_end_of_a_connection_is_refused() -> None:
    text = refused({"sessionTimeout": "75s", "expiry": "60s", "linger": "15s"})
    assert "option 'sessionTimeout' is 75 s, expected more than 'expiry' and 'linger' together, 75 s" in text
    assert parsed({"sessionTimeout": "76s", "expiry": "60s", "linger": "15s"}, ServerOptions)


def test_a_buffer_time_longer_than_the_session_timeout_is_refused() -> None:
    text = refused({"bufferTime": "121s"})
    assert "messages wait 121 s for a connection, but their session is kept for 120 s only" in text
    assert "sessionTimeout" in text
    assert parsed({"bufferTime": "121s", "sessionTimeout": "121s"}, ClientOptions)


def test_made_options_that_conflict_are_refused() -> None:
    with pytest.raises(OptionError, match="messages wait 120 s"):
        ServerOptions(session_timeout=60.0, buffer_time=120.0)
    with pytest.raises(OptionError, match="'expiry' and 'linger' together, 70 s"):
        ClientOptions(session_timeout=60.0, expiry=65.0)
    with pytest.raises(OptionError, match="longer than 32 characters"):
        ClientOptions(tag="x" * 33)


def test_the_longest_record_fits_the_shortest_limit_of_a_message() -> None:
    overhead = OVERHEAD_BYTES + FRAME_HEAD.size + RECORD_HEAD.size
    assert RECORD_BYTES + overhead <= MIN_MESSAGE_BYTES


@pytest.mark.parametrize("mtu", ["1183", "1152", "65505", "64k", "0", "1200", "1185"])
def test_an_mtu_out_of_range_is_refused(mtu: str) -> None:
    assert "option 'mtu'" in refused({"mtu": mtu})


@pytest.mark.parametrize("mtu", ["1184", "1216", "65504"])
def test_an_mtu_at_the_limits_is_accepted(mtu: str) -> None:
    assert parsed({"mtu": mtu}, ServerOptions).channel.mtu_bytes == int(mtu)


def test_a_term_length_is_a_power_of_two_and_at_least_eight_messages() -> None:
    assert "'termLength' is 3145728 bytes, not a power of two. Use 4194304." in refused({"termLength": "3m"})
    assert "Raise 'termLength' to at least 4194304" in refused({"maxMessage": "512k"})
    assert "option 'maxMessage'" in refused({"maxMessage": "64k"})
    assert parsed({"maxMessage": "16m", "termLength": "128m"}, ServerOptions)


def secret_file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"])
def test_a_shared_secret_is_read_without_its_line_ending(tmp_path: Path, ending: bytes) -> None:
    path = secret_file(tmp_path, b"0123456789abcdef" + ending)
    assert read_shared_secret(path) == derive_psk(b"0123456789abcdef")


def test_without_a_file_there_is_no_shared_secret() -> None:
    assert read_shared_secret(None) is None


def test_a_shared_secret_that_is_short_missing_or_readable_by_others_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"option 'sharedSecretFile'.*expected at least 16"):
        read_shared_secret(secret_file(tmp_path, b"0123456789abcde\n"))
    with pytest.raises(SetupError, match="does not exist"):
        read_shared_secret(tmp_path / "none")
    with pytest.raises(SetupError, match="can be read"):
        read_shared_secret(secret_file(tmp_path, bytes(32), 0o644))
