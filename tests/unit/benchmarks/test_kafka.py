from __future__ import annotations

import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest

from benchmarks.kafka import settings
from benchmarks.kafka.broker import free_ports, run_broker
from benchmarks.kafka.certificates import Certificates, make_certificates
from benchmarks.kafka.properties import Ports, broker_properties


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_the_broker_has_a_plain_and_a_mutual_tls_listener() -> None:
    text = broker_properties(Path("/data"), Ports(1, 2, 3), Path("/broker.pem"), Path("/authority.pem"))
    lines = dict(line.split("=", 1) for line in text.splitlines())
    assert lines["listeners"] == "PLAINTEXT://127.0.0.1:1,SSL://127.0.0.1:2,CONTROLLER://127.0.0.1:3"
    assert lines["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1,SSL://127.0.0.1:2"
    assert lines["controller.quorum.voters"] == "1@127.0.0.1:3"
    assert (lines["ssl.client.auth"], lines["ssl.keystore.location"]) == ("required", "/broker.pem")
    assert lines["log.dirs"] == "/data"


def test_both_ends_of_tls_use_one_protocol_and_cipher() -> None:
    text = broker_properties(Path("/data"), Ports(1, 2, 3), Path("/b"), Path("/a"))
    options = settings.tls_options("/client.pem", "/authority.pem")
    for name in ("ssl.enabled.protocols", "ssl.cipher.suites"):
        assert f"{name}={options[f'kafka.{name}']}\n" in text


def test_the_tuned_settings_are_those_that_the_page_promises() -> None:
    assert settings.settings_text(settings.TUNED_READING) == (
        "max.poll.records=20000, fetch.max.bytes=67108864, max.partition.fetch.bytes=16777216, check.crcs=false, "
        "receive.buffer.bytes=4194304"
    )
    assert settings.settings_text(settings.TUNED_WRITING) == (
        "batch.size=262144, linger.ms=5, acks=1, enable.idempotence=false"
    )
    assert settings.settings_text(settings.EXACTLY_ONCE_WRITING).endswith("acks=all, enable.idempotence=true")
    assert settings.settings_text(settings.DEFAULT) == "defaults"


def test_the_shown_settings_have_no_temporary_path() -> None:
    assert "/secret" not in settings.settings_text(settings.tls_options("/secret/key", "/secret/trust"))


def test_both_ends_accept_each_other_by_the_certificates(certificates: Certificates) -> None:
    server, client = _contexts(certificates)
    client.load_cert_chain(certificates.client)
    assert _handshake(server, client) == "TLSv1.3"


def test_a_client_without_a_certificate_is_refused(certificates: Certificates) -> None:
    server, client = _contexts(certificates)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _handshake(server, client)


def test_only_this_user_can_read_the_keys(certificates: Certificates) -> None:
    assert {stat.S_IMODE(path.stat().st_mode) for path in (certificates.broker, certificates.client)} == {0o600}


def test_without_kafka_the_error_names_the_command_that_fetches_it(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match=r"Kafka's jars are not in .*make bench"),
        run_broker(tmp_path / "k", tmp_path),
    ):
        raise AssertionError("no broker can run")
    assert not (tmp_path / "k").exists()


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(3)
    assert len(set(ports)) == 3
    for port in ports:
        with socket.socket() as one:
            one.bind(("127.0.0.1", port))


def _contexts(certificates: Certificates) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates.authority))
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(certificates.broker)
    return server, ssl.create_default_context(cafile=str(certificates.authority))


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Connect both ends over a socket pair, and exchange a byte: a server refuses a client after the handshake."""
    near, far = socket.socketpair()
    near.settimeout(10)
    far.settimeout(10)

    def serve() -> None:
        try:
            with server.wrap_socket(far, server_side=True) as accepted:
                accepted.sendall(b"x")
        except OSError:  # the client is refused: it sees it, too
            far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(near, server_hostname="127.0.0.1") as connected:
            if connected.recv(1) != b"x":
                raise ConnectionError("the server closed the connection")
            return connected.version()
    finally:
        near.close()
        thread.join(10)
