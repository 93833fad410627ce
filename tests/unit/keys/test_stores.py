"""One contract, two stores: files and memory."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aeron_spark.errors import DataFormatError, ServerKeyChanged
from aeron_spark.keys import FilePeerStore, KeyPaths, MemoryPeerStore, network_server
from aeron_spark.protocol.access import UNKNOWN_KEY, Grant, PeerStore, check_client, verify_server_key
from aeron_spark.protocol.keypair import new_keypair, public_text

SERVER = network_server("10.0.0.1", 4000)
OTHER = network_server("10.0.0.1", 4002)


def key(number: int) -> bytes:
    return new_keypair(random.Random(number).randbytes).public


@pytest.fixture
def places(tmp_path: Path) -> KeyPaths:
    return KeyPaths.below(tmp_path / "config")


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, places: KeyPaths) -> PeerStore:
    if request.param == "memory":
        return MemoryPeerStore(authorized={key(7): Grant(tags=("seven",))})
    places.authorized_keys.parent.mkdir()
    places.authorized_keys.write_text(f"tag=seven {public_text(key(7))}\n")
    places.authorized_keys.chmod(0o600)
    return FilePeerStore(places)


def test_an_identity_stays(store: PeerStore) -> None:
    assert store.identity() == store.identity()


def test_row_41_first_use_is_stored_and_a_changed_key_is_not(store: PeerStore) -> None:
    assert verify_server_key(SERVER, store.server_key(SERVER), key(1)).remember
    store.trust(SERVER, key(1), "a note")
    store.trust(SERVER, key(1))
    assert not verify_server_key(SERVER, store.server_key(SERVER), key(1)).remember
    with pytest.raises(ServerKeyChanged):
        store.trust(SERVER, key(2))
    with pytest.raises(ServerKeyChanged):
        verify_server_key(SERVER, store.server_key(SERVER), key(2))
    assert store.servers() == {SERVER: key(1)}


def test_row_42_what_is_known_can_be_forgotten(store: PeerStore) -> None:
    store.trust(SERVER, key(1))
    trust = verify_server_key(SERVER, store.server_key(SERVER), key(2), validate=False)
    assert (trust.remote_key_changed, trust.remember) == (True, False)
    assert store.forget(SERVER)
    assert not store.forget(SERVER)
    store.trust(SERVER, key(2))
    assert store.servers() == {SERVER: key(2)}


def test_row_43_two_ports_are_two_servers(store: PeerStore) -> None:
    store.trust(SERVER, key(1))
    store.trust(OTHER, key(2))
    assert (store.server_key(SERVER), store.server_key(OTHER)) == (key(1), key(2))


def test_of_two_keys_at_once_one_wins(store: PeerStore) -> None:
    def trust(number: int) -> bool:
        try:
            store.trust(SERVER, key(number))
        except ServerKeyChanged:
            return False
        return store.server_key(SERVER) == key(number)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(trust, range(4))) == 1


def test_row_45_a_key_that_is_not_authorised_has_no_grant(store: PeerStore) -> None:
    grant = store.grant(key(7))
    assert grant is not None
    assert check_client(grant, "seven", required=True) is None
    assert store.grant(key(8)) is None
    assert check_client(store.grant(key(8)), "seven", required=True) == UNKNOWN_KEY


def test_row_44_files_persist_and_memories_differ(places: KeyPaths) -> None:
    first = FilePeerStore(places)
    first.trust(SERVER, key(1))
    second = FilePeerStore(places)
    assert second.identity() == first.identity() == FilePeerStore(places).identity()
    assert second.servers() == {SERVER: key(1)}
    assert {one.name for one in places.identity.parent.iterdir()} == {"identity", "known_servers", "known_servers.lock"}
    assert MemoryPeerStore().identity() != MemoryPeerStore().identity()
    assert MemoryPeerStore(first.identity()).identity() == first.identity()


def test_a_loaded_identity_is_used_and_none_is_made(places: KeyPaths, rng: random.Random) -> None:
    pair = new_keypair(rng.randbytes)
    assert FilePeerStore(places, pair).identity() == pair
    assert not places.identity.exists()


def test_authorised_keys_are_read_anew(places: KeyPaths) -> None:
    store = FilePeerStore(places)
    assert store.grant(key(7)) is None, "without a file nobody is authorised"
    places.authorized_keys.parent.mkdir()
    places.authorized_keys.write_text(public_text(key(7)))
    places.authorized_keys.chmod(0o600)
    assert store.grant(key(7)) == Grant()
    places.authorized_keys.write_text("# nobody\n")
    assert store.grant(key(7)) is None
    places.authorized_keys.write_text("nonsense\n")
    with pytest.raises(DataFormatError, match="line 1"):
        store.grant(key(7))
