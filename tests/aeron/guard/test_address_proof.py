"""A source that must return a cookie gets no image before it has, and never more bytes than it has sent."""

from __future__ import annotations

import base64
import secrets
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aeron_spark.aeron.guard import GuardRules, guarded, require_cookies
from aeron_spark.protocol.handshake_packets import Cookies, HelloPacket, encode, hello_core
from aeron_spark.transport.api import HANDSHAKE_STREAM_ID, HANDSHAKE_TERM_BYTES, MTU_BYTES
from aeron_spark.waiting import wait_for
from tests.aeron.guard import frames
from tests.aeron.guard.drivers import TIMEOUT_S, Driver, guarding_driver
from tests.aeron.guard.endpoints import CollectingSubscription, send_until, subscription_to
from tests.aeron.guard.frames import ERR, NAK, SM, FrameSender, frame_senders
from tests.ports import free_port

STREAM = HANDSHAKE_STREAM_ID
RULES = GuardRules(streams=(STREAM,), rate=10_000, burst=10_000, total_rate=10_000)
RETRY = b"aeron-spark/1 RETRY "
ERROR_TEXT = 40  # offset in an error frame
HELLO_END = 1152  # position behind a HELLO


@contextmanager
def protected(driver: Driver) -> Iterator[tuple[CollectingSubscription, Cookies]]:
    """Subscribe to the handshake stream on a free port, where every source must return a cookie."""
    port, cookies = free_port(), Cookies(secrets.token_bytes)
    registration = require_cookies(driver.client, port=port, stream_id=STREAM, secret=cookies.secret)
    channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
    try:
        with subscription_to(driver, guarded(channel, RULES), STREAM, port) as server:
            yield server, cookies
    finally:
        registration.close()
    wait_for(lambda: driver.images() == 0, TIMEOUT_S, "the images' memory to be free")


def hello(cookie: bytes = b"", key: bytes = b"k" * 16) -> bytes:
    return encode(HelloPacket(key, b"e" * 32, cookie))


def core(key: bytes = b"k" * 16) -> bytes:
    return hello_core(HelloPacket(key, b"e" * 32))


def handshake_setup(session: int) -> bytes:
    return frames.setup(session, STREAM, mtu=MTU_BYTES, term_length=HANDSHAKE_TERM_BYTES)


def answers_of(sender: FrameSender, kind: int) -> list[bytes]:
    """Return the frames of one kind that arrived."""
    return [frame for frame in sender.received() if frame[6] == kind]


def answer_to(sender: FrameSender, frame: bytes, kind: int, what: str) -> bytes:
    """Send a frame until a frame of this kind answers it; return the answer."""
    found: list[bytes] = []
    send_until(sender, frame, lambda: found.extend(answers_of(sender, kind)) or found, what)
    return found[0]


def cookie_in(error: bytes) -> bytes:
    text = error[ERROR_TEXT:]
    assert text.startswith(RETRY), text
    return base64.urlsafe_b64decode(text[len(RETRY) :] + b"=")


def test_a_session_is_admitted_by_the_hello_that_returns_its_cookie(driver: Driver) -> None:
    with protected(driver) as (server, cookies), frame_senders(1, server.port) as (sender,):
        status = answer_to(sender, handshake_setup(1), SM, "the SETUP to be acknowledged")
        assert len(status) <= len(handshake_setup(1))
        error = answer_to(sender, frames.data(1, STREAM, hello()), ERR, "RETRY")
        assert status[-8:] == error[16:24]  # one receiver: the client's driver ignores errors of any other
        cookie = cookie_in(error)
        address = sender.socket.getsockname()[0]
        assert cookie == cookies.make(time.monotonic(), address, core())
        assert driver.images() == 0
        with_cookie = frames.data(2, STREAM, hello(cookie))
        send_until(sender, with_cookie, lambda: server.image(2), "the image of the session with the cookie")
        assert server.wait_for_messages(1) == [hello(cookie)]
        assert server.image(1) is None
        send_until(
            sender, frames.data(2, STREAM, b"second", offset=HELLO_END),
            lambda: len(server.poll()) > 1, "the next packet of the session",
        )  # fmt: skip
        assert server.poll() == [hello(cookie), b"second"]


def test_floods_of_sources_without_a_cookie_make_no_image_and_are_answered_with_fewer_bytes(driver: Driver) -> None:
    with protected(driver) as (server, cookies), frame_senders(40, server.port) as senders:
        before = driver.drops("receiving: no-cookie")
        sent = [0] * len(senders)
        stolen = cookies.make(time.monotonic(), "127.0.0.1", core())  # the cookie of another address

        def flood() -> bool:
            for index, one in enumerate(senders):
                session = 1_000 * one.port
                packets = [handshake_setup(session + number) for number in range(10)]
                packets += [frames.data(session, STREAM, packet) for packet in (hello(), hello(stolen), b"x" * 999)]
                packets += [frames.heartbeat(session, STREAM, offset=HELLO_END), frames.data(session, STREAM, b"short")]
                packets += [frames.heartbeat(session, STREAM), frames.data(session, STREAM, b"y", offset=HELLO_END)]
                one.send(*packets)
                sent[index] += sum(map(len, packets))
            return driver.drops("receiving: no-cookie") - before > 2_000

        wait_for(flood, TIMEOUT_S, "2,000 frames of sources without a cookie")
        received = [sum(map(len, one.received(0.2 if index == 0 else 0.0))) for index, one in enumerate(senders)]
        assert any(received)
        assert all(got <= gave for got, gave in zip(received, sent, strict=True)), (received, sent)
        assert driver.images() == 0
        assert server.subscription.imageCount() == 0


def test_a_cookie_admits_one_session(driver: Driver) -> None:
    with protected(driver) as (server, _), frame_senders(2, server.port) as (sender, other):
        cookie = cookie_in(answer_to(sender, frames.data(1, STREAM, hello()), ERR, "RETRY"))
        answer_to(other, frames.data(3, STREAM, hello(cookie)), ERR, "RETRY for another address")
        send_until(sender, frames.data(2, STREAM, hello(cookie)), lambda: server.image(2), "the image")
        answer_to(sender, frames.data(4, STREAM, hello(cookie)), ERR, "RETRY for a cookie that was used")
        assert server.subscription.imageCount() == 1


def test_a_lost_hello_is_requested_again(driver: Driver) -> None:
    with protected(driver) as (server, _), frame_senders(1, server.port) as (sender,):
        heartbeat = frames.heartbeat(1, STREAM, offset=HELLO_END)
        request = answer_to(sender, heartbeat, NAK, "the request for the data before the heartbeat")
        assert len(request) <= len(heartbeat)
        assert request[8:] == struct.pack("<5i", 1, STREAM, 7, 0, HELLO_END)


def test_a_hello_to_a_server_that_was_restarted_meanwhile_is_answered_as_by_a_known_receiver(driver: Driver) -> None:
    """The SETUP went to the receiver of the server before, and the client's driver ignores errors of unknown ones."""
    with protected(driver) as (server, _), frame_senders(1, server.port) as (sender,):
        packet, answers = frames.data(1, STREAM, hello()), []

        def is_rejected() -> bool:
            answers.extend(sender.received())
            return any(frame[6] == ERR for frame in answers)

        send_until(sender, packet, is_rejected, "RETRY")
        first, second = answers[:2]
        assert [first[6], second[6]] == [SM, ERR]
        assert first[-8:] == second[16:24]  # one receiver
        assert len(first) + len(second) <= len(packet)


@pytest.mark.parametrize("length", [64, 96, 128, 160])
def test_all_answers_to_a_packet_together_are_not_longer_than_it(driver: Driver, length: int) -> None:
    with protected(driver) as (server, _), frame_senders(1, server.port) as (sender,):
        before = driver.drops("receiving: no-cookie")
        packet = frames.data(1, STREAM, bytes(length - 32))
        send_until(sender, packet, lambda: driver.drops("receiving: no-cookie") > before, "the packet to be refused")
        assert sum(map(len, sender.received(0.2))) <= sender.sent


def test_a_driver_with_separate_threads_admits_a_session(aeron_dir: Path) -> None:
    """Its conductor makes the image later than its receiver admits the session, and the HELLO waits for it."""
    with (
        guarding_driver(aeron_dir, "-Daeron.threading.mode=DEDICATED") as own,
        protected(own) as (server, _),
        frame_senders(1, server.port) as (sender,),
    ):
        cookie = cookie_in(answer_to(sender, frames.data(1, STREAM, hello()), ERR, "RETRY"))
        sender.send(frames.data(2, STREAM, hello(cookie)))
        assert server.wait_for_messages(1) == [hello(cookie)]


def test_after_the_registration_of_its_secret_ends_a_setup_makes_an_image(driver: Driver) -> None:
    port = free_port()
    registration = require_cookies(driver.client, port=port, stream_id=STREAM, secret=secrets.token_bytes(32))
    channel = guarded(f"aeron:udp?endpoint=127.0.0.1:{port}", RULES)
    with subscription_to(driver, channel, STREAM, port) as server, frame_senders(1, port) as (sender,):
        answer_to(sender, handshake_setup(1), SM, "the SETUP to be acknowledged")
        assert driver.images() == 0
        registration.close()
        send_until(sender, handshake_setup(1), lambda: server.image(1), "the image")
    wait_for(lambda: driver.images() == 0, TIMEOUT_S, "the image's memory to be free")
