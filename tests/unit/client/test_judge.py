"""What a client makes of the key that a server shows."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aeron_spark.client.judge import ServerKeyVerifier
from aeron_spark.client.settings import ClientSettings
from aeron_spark.errors import IdentityError, ServerKeyChanged, SetupError, UsageError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.access import ServerName
from tests.unit.connection.ends import wait_for

SERVER = ServerName("10.0.0.1", 20121)
ONE, OTHER = b"1" * 32, b"2" * 32


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def a_judge(pool: ThreadPoolExecutor, known: bytes | None = None, **settings: object) -> ServerKeyVerifier:
    store = MemoryPeerStore()
    if known is not None:
        store.trust(SERVER, known)
    judge = ServerKeyVerifier(store, SERVER, ClientSettings(**settings), pool)  # type: ignore[arg-type]
    assert not judge.asked
    wait_for(judge.ready)
    assert not judge.asked
    return judge


def test_the_first_use_is_trusted_and_to_be_remembered(pool: ThreadPoolExecutor) -> None:
    judge = a_judge(pool)
    assert judge.key == b""
    judge.verify(ONE)
    assert (judge.key, judge.trust.remember) == (ONE, True)
    with pytest.raises(IdentityError, match="not known"):
        a_judge(pool, trust_first_use=False).verify(ONE)


def test_another_key_than_the_known_one_is_refused_and_not_taken(pool: ThreadPoolExecutor) -> None:
    judge = a_judge(pool, known=ONE)
    with pytest.raises(ServerKeyChanged):
        judge.verify(OTHER)
    assert judge.key == b""
    judge.verify(ONE)
    assert not judge.trust.remember
    lenient = a_judge(pool, known=ONE, validate=False)
    lenient.verify(OTHER)
    assert (lenient.key, lenient.trust.remember, lenient.trust.remote_key_changed) == (OTHER, False, True)


def test_the_key_that_is_asked_for_is_the_only_one(pool: ThreadPoolExecutor) -> None:
    judge = a_judge(pool, known=OTHER, server_key=ONE)
    with pytest.raises(ServerKeyChanged):
        judge.verify(OTHER)
    judge.verify(ONE)
    assert (judge.key, judge.trust.remember) == (ONE, False)


@pytest.mark.parametrize("error", [OSError("the disk is gone"), SetupError("the disk is gone")])
def test_a_store_that_fails_is_an_error_each_time_and_is_asked_again(
    pool: ThreadPoolExecutor, error: Exception
) -> None:
    class Failing(MemoryPeerStore):
        left = 2

        def server_key(self, server: ServerName) -> bytes | None:
            self.left -= 1
            if self.left >= 0:
                raise error
            return ONE

    judge = ServerKeyVerifier(Failing(), SERVER, ClientSettings(), pool)
    for _ in range(2):
        with pytest.raises(type(error) if isinstance(error, SetupError) else UsageError, match="the disk is gone"):
            wait_for(judge.ready)
        assert not judge.asked
    wait_for(judge.ready)
    with pytest.raises(ServerKeyChanged):
        judge.verify(OTHER)
