"""The behaviour that the peer stores in files and in memory have in common."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aeron_spark.errors import ServerKeyChanged
from aeron_spark.keys import FilePeerStore, KeyPaths, MemoryPeerStore, network_server
from aeron_spark.keys.clients_file import ClientTable
from aeron_spark.protocol.access import PeerStore, verify_server_key
from aeron_spark.protocol.grants import Grant
from aeron_spark.protocol.keypair import new_keypair, public_text

SERVER = network_server("10.0.0.1", 4000)
OTHER_SERVER = network_server("10.0.0.1", 4002)


def public_key(number: int) -> bytes:
    return new_keypair(random.Random(number).randbytes).public


@pytest.fixture
def paths(tmp_path: Path) -> KeyPaths:
    return KeyPaths.below(tmp_path / "config")


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, paths: KeyPaths) -> PeerStore:
    if request.param == "memory":
        return MemoryPeerStore(authorized={public_key(7): Grant(comment="seven")})
    paths.authorized_keys.parent.mkdir()
    paths.authorized_keys.write_text(f"{public_text(public_key(7))} seven\n")
    paths.authorized_keys.chmod(0o600)
    return FilePeerStore(paths, clients=ClientTable(paths.authorized_keys))


def test_a_store_returns_the_same_identity_again(store: PeerStore) -> None:
    assert store.identity() == store.identity()


def test_row_41_the_key_of_the_first_use_is_stored_and_a_changed_key_is_refused(store: PeerStore) -> None:
    assert verify_server_key(SERVER, store.server_key(SERVER), public_key(1)).remember
    store.trust(SERVER, public_key(1), "a note")
    store.trust(SERVER, public_key(1))
    assert not verify_server_key(SERVER, store.server_key(SERVER), public_key(1)).remember
    with pytest.raises(ServerKeyChanged):
        store.trust(SERVER, public_key(2))
    with pytest.raises(ServerKeyChanged):
        verify_server_key(SERVER, store.server_key(SERVER), public_key(2))
    assert store.servers() == {SERVER: public_key(1)}


def test_row_42_a_known_server_can_be_removed(store: PeerStore) -> None:
    store.trust(SERVER, public_key(1))
    trust = verify_server_key(SERVER, store.server_key(SERVER), public_key(2), validate=False)
    assert (trust.remote_key_changed, trust.remember) == (True, False)
    assert store.forget(SERVER)
    assert not store.forget(SERVER)
    store.trust(SERVER, public_key(2))
    assert store.servers() == {SERVER: public_key(2)}


def test_row_43_two_ports_of_a_host_are_two_servers(store: PeerStore) -> None:
    store.trust(SERVER, public_key(1))
    store.trust(OTHER_SERVER, public_key(2))
    assert (store.server_key(SERVER), store.server_key(OTHER_SERVER)) == (public_key(1), public_key(2))


def test_only_one_of_concurrent_keys_of_a_server_is_stored(store: PeerStore) -> None:
    def trust(number: int) -> bool:
        try:
            store.trust(SERVER, public_key(number))
        except ServerKeyChanged:
            return False
        return store.server_key(SERVER) == public_key(number)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(trust, range(4))) == 1


def test_row_45_a_key_that_is_not_authorised_has_no_grant(store: PeerStore) -> None:
    grant = store.grant(public_key(7))
    assert grant.comment == "seven"
    assert store.grant(public_key(8)) is None


def test_row_44_an_identity_persists_in_files_and_each_memory_store_has_a_new_one(paths: KeyPaths) -> None:
    first = FilePeerStore(paths)
    first.trust(SERVER, public_key(1))
    second = FilePeerStore(paths)
    assert second.identity() == first.identity() == FilePeerStore(paths).identity()
    assert second.servers() == {SERVER: public_key(1)}
    assert {one.name for one in paths.identity.parent.iterdir()} == {"identity", "known_servers", "known_servers.lock"}
    assert MemoryPeerStore().identity() != MemoryPeerStore().identity()
    assert MemoryPeerStore(first.identity()).identity() == first.identity()


def test_a_store_with_a_given_identity_does_not_create_a_file(paths: KeyPaths, rng: random.Random) -> None:
    pair = new_keypair(rng.randbytes)
    assert FilePeerStore(paths, pair).identity() == pair
    assert not paths.identity.exists()


def test_a_store_without_a_clients_file_authorises_no_key(paths: KeyPaths) -> None:
    assert FilePeerStore(paths).grant(public_key(7)) is None
