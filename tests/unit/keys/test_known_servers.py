"""The known servers of a client: first use, a changed key, concurrent writers, and lines that stay unchanged."""

from __future__ import annotations

import random
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError, OptionError, ServerKeyChanged, SetupError
from aeron_spark.keys.key_files import KnownServer, KnownServers, ipc_server, network_server, parse_server
from aeron_spark.protocol.access import ServerName
from aeron_spark.protocol.keypair import new_keypair, public_text
from tests.programs import python_environ


def public_key(number: int) -> bytes:
    return new_keypair(random.Random(number).randbytes).public


def key_text(number: int) -> str:
    return public_text(public_key(number))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "known_servers"


@pytest.fixture
def known(path: Path) -> KnownServers:
    return KnownServers(path)


def test_row_41_a_changed_key_is_refused_and_the_file_stays_unchanged(known: KnownServers, path: Path) -> None:
    server = network_server("10.0.0.1", 4000)
    assert known.key(server) is None
    assert known.trust(server, public_key(1))
    before, inode = path.read_bytes(), path.stat().st_ino
    assert before == f"10.0.0.1 4000 {key_text(1)}\n".encode()
    assert not known.trust(server, public_key(1)), "known already"
    with pytest.raises(ServerKeyChanged, match=r"aeron-spark keys forget 10\.0\.0\.1:4000"):
        known.trust(server, public_key(2))
    assert (path.read_bytes(), path.stat().st_ino) == (before, inode)
    assert known.key(server) == public_key(1)


def test_row_42_after_the_removal_of_a_key_another_one_can_be_stored(known: KnownServers) -> None:
    server = network_server("10.0.0.1", 4000)
    known.trust(server, public_key(1))
    assert known.forget(server)
    assert not known.forget(server)
    assert known.key(server) is None
    assert known.trust(server, public_key(2))
    assert known.key(server) == public_key(2)


def test_row_43_each_server_of_a_host_has_a_separate_key(known: KnownServers) -> None:
    first, second = network_server("127.0.0.1", 20000), network_server("127.0.0.1", 21000)
    known.trust(first, public_key(1))
    known.trust(second, public_key(2))
    assert (known.key(first), known.key(second)) == (public_key(1), public_key(2))
    known.forget(first)
    assert (known.key(first), known.key(second)) == (None, public_key(2))


def test_servers_of_two_media_drivers_of_a_machine_have_separate_keys(known: KnownServers) -> None:
    first, second = ipc_server(Path("/dev/shm/aeron one")), ipc_server(Path("/dev/shm/aeron+two"))
    known.trust(first, public_key(1))
    known.trust(second, public_key(2), "over there")
    assert (known.key(first), known.key(second)) == (public_key(1), public_key(2))
    assert parse_server("ipc:/dev/shm/aeron one") == parse_server(str(first)) == first
    assert parse_server("ipc:/dev/shm/aeron+two") == parse_server(str(second)) == second


def test_row_44_the_file_has_mode_0600_and_another_mode_is_refused(known: KnownServers, path: Path) -> None:
    known.trust(network_server("host", 1), public_key(1))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {one.name for one in path.parent.iterdir()} == {path.name, f"{path.name}.lock"}
    path.chmod(0o666)
    for access in (known.all, lambda: known.trust(network_server("host", 2), public_key(2))):
        with pytest.raises(SetupError, match="chmod go-w"):
            access()


@pytest.mark.parametrize(
    ("spelling", "server"),
    [
        ("LOCALHOST:4000", ServerName("127.0.0.1", 4000)),
        ("[::FFFF:127.0.0.1]:4000", ServerName("127.0.0.1", 4000)),
        ("[0:0:0:0:0:0:0:1]:4000", ServerName("::1", 4000)),
        ("Prices.Example.:4000", ServerName("prices.example", 4000)),
        ("[fe80::1%eth0]:4000", ServerName("fe80::1%eth0", 4000)),
    ],
)
def test_all_spellings_of_a_server_mean_the_same_server(spelling: str, server: ServerName, known: KnownServers) -> None:
    assert parse_server(spelling) == server
    assert parse_server(str(server)) == server
    host, _, port = spelling.rpartition(":")
    assert network_server(host, int(port)) == server
    known.path.parent.mkdir()
    known.path.write_text(f"{host.strip('[]')} {port} {key_text(1)}\n")  # as a user may edit it
    known.path.chmod(0o600)
    assert known.key(server) == public_key(1)


@pytest.mark.parametrize(
    "spelling",
    [
        "",
        "host",
        "host:",
        "host:0",
        "host:65536",
        "::1:4000",
        "a b:1",
        "[fe80::1%a b]:1",
        "[fe80::1%a\nb]:1",
        "ipc:here",
        "ipc:",
        "host:4000:0",
        "host:4000:4000",
        "host:1:2:3",
    ],
)
def test_an_invalid_server_is_refused(spelling: str) -> None:
    with pytest.raises(OptionError, match="the server"):
        parse_server(spelling)


def test_an_address_with_a_control_port_names_the_server_of_its_data_port() -> None:
    assert parse_server("Host:4000:4100") == ServerName("host", 4000)
    assert parse_server("[::1]:4000:4100") == ServerName("::1", 4000)


def test_all_other_lines_stay_unchanged(known: KnownServers, path: Path) -> None:
    head = f"# mine\r\n\r\n  10.0.0.1   4000\t{key_text(1)}   the   old one \n".encode()
    middle = f"HOST.example 4000 {key_text(2)}\n".encode()
    tail = f"# no line end {key_text(3)}".encode()
    path.parent.mkdir()
    path.write_bytes(head + middle + tail)
    path.chmod(0o600)
    assert known.all()[network_server("10.0.0.1", 4000)] == KnownServer(
        ServerName("10.0.0.1", 4000), public_key(1), "the   old one"
    )
    known.trust(network_server("::1", 5), public_key(4), " a new one ")
    added = f"::1 5 {key_text(4)} a new one\n".encode()
    assert path.read_bytes() == head + middle + tail + b"\n" + added
    known.forget(network_server("host.EXAMPLE", 4000))
    assert path.read_bytes() == head + tail + b"\n" + added


def test_a_symbolic_link_to_the_file_is_not_replaced(known: KnownServers, path: Path, tmp_path: Path) -> None:
    known.trust(network_server("host", 1), public_key(1))
    link = tmp_path / "link"
    link.symlink_to(path)
    KnownServers(link).trust(network_server("host", 2), public_key(2))
    assert link.is_symlink()
    assert len(known.all()) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"10.0.0.1 4000", "is not 'host port key"),
        (b"10.0.0.1 4000 AAAA", "is not a public key"),
        (b"10.0.0.1:4000 %KEY", "is not 'host port key"),
        (b"10.0.0.1 0 %KEY", "has the port 0"),
        (b"10.0.0.1 x %KEY", "its port is 'x'"),
        (b"10.0.0 4000 %KEY", "not four numbers"),
        (b"\xff 4000 %KEY", "is not UTF-8"),
        (b"first 1 %KEY", "names first:1 again"),
    ],
)
def test_the_error_of_an_invalid_line_names_it_and_other_lines_can_be_removed(
    line: bytes, message: str, known: KnownServers, path: Path
) -> None:
    path.parent.mkdir()
    first = f"first 1 {key_text(1)}\n".encode()
    path.write_bytes(first + b"# a note\n" + line.replace(b"%KEY", key_text(2).encode()) + b"\n")
    path.chmod(0o600)
    before = path.read_bytes()
    for access in (
        known.all,
        lambda: known.key(parse_server("first:1")),
        lambda: known.trust(parse_server("x:1"), public_key(3)),
    ):
        with pytest.raises(DataFormatError, match=f"line 3 of {path} .*{message}"):
            access()
    assert path.read_bytes() == before
    assert known.forget(parse_server("first:1")), "a valid line could not be removed"
    assert b"first" not in path.read_bytes()


def test_a_comment_of_two_lines_is_refused(known: KnownServers, path: Path) -> None:
    with pytest.raises(OptionError, match="comment"):
        known.trust(network_server("host", 1), public_key(1), f"mine\nother 2 {key_text(2)}")
    assert not path.exists()


WRITER_PROGRAM = f"""
import sys
from pathlib import Path
from aeron_spark.protocol.keypair import parse_public
from aeron_spark.keys import KnownServers, network_server
for number in range(int(sys.argv[2]), int(sys.argv[2]) + 10):
    KnownServers(Path(sys.argv[1])).trust(network_server("host", number), parse_public("{key_text(1)}"))
"""


def trust_ten_servers(path: Path, first: int) -> None:
    known = KnownServers(path)
    for number in range(first, first + 10):
        known.trust(network_server("host", number), public_key(1))


@pytest.mark.slow
def test_concurrent_writers_do_not_lose_lines(path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER_PROGRAM, str(path), str(first)], env=python_environ())
        for first in (1000, 2000)
    ]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda first: trust_ten_servers(path, first), range(10_000, 50_000, 10_000)))
    for process in processes:
        assert process.wait(60) == 0
    known = KnownServers(path).all()
    assert len(known) == 60
    assert {entry.key for entry in known.values()} == {public_key(1)}


def test_only_one_of_concurrent_first_uses_with_different_keys_is_stored(path: Path) -> None:
    server = network_server("host", 1)

    def trust(number: int) -> bool:
        try:
            return KnownServers(path).trust(server, public_key(number))
        except ServerKeyChanged:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(trust, range(8))) == 1


@given(
    st.lists(
        st.tuples(
            st.booleans(), st.sampled_from(["10.0.0.1", "::1", "host", "ipc:/a"]), st.integers(1, 2), st.integers(1, 2)
        )
    )
)
def test_the_file_behaves_like_a_map_from_servers_to_keys(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, str, int, int]]
) -> None:
    known = KnownServers(tmp_path_factory.mktemp("map") / "known_servers")
    model: dict[ServerName, bytes] = {}
    for trust, host, port, number in steps:
        server = parse_server(host) if host.startswith("ipc:") else network_server(host, port)
        if not trust:
            assert known.forget(server) == (model.pop(server, None) is not None)
        elif model.get(server, public_key(number)) == public_key(number):
            assert known.trust(server, public_key(number)) == (server not in model)
            model[server] = public_key(number)
        else:
            with pytest.raises(ServerKeyChanged):
                known.trust(server, public_key(number))
        assert {name: entry.key for name, entry in known.all().items()} == model
