"""A server's TOML file has options at its top or in the table [server]."""

from __future__ import annotations

from pathlib import Path

import pytest

from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError, SetupError
from aeron_spark.files import read_toml
from aeron_spark.options import ServerOptions
from aeron_spark.transport.api import ServerAddress

TOML = """
# a comment
bind = ["10.0.0.7:20121", "[::1]:20121"]
maxConnections = 100
handshakesPerSecond = 0.5
exemptLoopback = true
allow = ["10.0.0.0/8"]
deny = []
sessionTimeout = "5m"
"""


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "server.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("head", ["", "[server]\n"])
def test_a_file_has_a_servers_options(tmp_path: Path, head: str) -> None:
    options = ServerOptions.parse("", read_toml(written(tmp_path, head + TOML)))
    assert options.addresses == (
        ServerAddress("udp", "10.0.0.7", 20121, 20122),
        ServerAddress("udp", "::1", 20121, 20122),
    )
    assert (options.max_connections, options.handshakes_per_second, options.exempt_loopback) == (100, 0.5, True)
    assert options.session_timeout == 300


def test_an_empty_file_has_no_options(tmp_path: Path) -> None:
    assert read_toml(written(tmp_path, "")) == {}


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        ("maxConnections = ", DataFormatError, "is not TOML"),
        ("a = 1\na = 2", DataFormatError, "is not TOML"),
        (b"\xff", DataFormatError, "is not UTF-8"),
        ("server = 1", OptionError, "server is a value, expected a table"),
        ("[client]\ntag = 'x'", OptionError, r"an unknown table \[client\]"),
        ("[server.limits]\nmaxConnections = 1", OptionError, r"an unknown table \[limits\]"),
        ("mtu = 1184\n[server]\nmtu = 8192", OptionError, "option mtu is given twice, at the top and in"),
    ],
)
def test_a_file_with_other_content_is_refused(
    tmp_path: Path, text: str | bytes, error: type[AeronSparkError], reason: str
) -> None:
    with pytest.raises(error, match=reason) as caught:
        read_toml(written(tmp_path, text))
    assert "server.toml" in str(caught.value)
    assert caught.value.remedy


def test_the_error_for_an_unknown_key_suggests_the_nearest(tmp_path: Path) -> None:
    found = read_toml(written(tmp_path, "maxConections = 1"))
    with pytest.raises(OptionError, match="Did you mean 'maxConnections'"):
        ServerOptions.parse("", found)


def test_the_error_for_a_missing_file_names_it(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"none\.toml cannot be read"):
        read_toml(tmp_path / "none.toml")
