"""The contract of both stores, in files and in memory."""

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
def paths(tmp_path: Path) -> KeyPaths:
    return KeyPaths.below(tmp_path / "config")


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, paths: KeyPaths) -> PeerStore:
    if request.param == "memory":
        return MemoryPeerStore(authorized={key(7): Grant(tags=("seven",))})
    paths.authorized_keys.parent.mkdir()
    paths.authorized_keys.write_text(f"tag=seven {public_text(key(7))}\n")
    paths.authorized_keys.chmod(0o600)
    return FilePeerStore(paths)


def test_an_identity_does_not_change(store: PeerStore) -> None:
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


def test_row_42_a_known_server_can_be_removed(store: PeerStore) -> None:
    store.trust(SERVER, key(1))
    trust = verify_server_key(SERVER, store.server_key(SERVER), key(2), validate=False)
    assert (trust.remote_key_changed, trust.remember) == (True, False)
    assert store.forget(SERVER)
    assert not store.forget(SERVER)
    store.trust(SERVER, key(2))
    assert store.servers() == {SERVER: key(2)}


def test_row_43_two_ports_of_a_host_are_two_servers(store: PeerStore) -> None:
    store.trust(SERVER, key(1))
    store.trust(OTHER, key(2))
    assert (store.server_key(SERVER), store.server_key(OTHER)) == (key(1), key(2))


def test_of_concurrent_keys_of_a_server_only_one_is_stored(store: PeerStore) -> None:
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


def test_row_44_files_keep_an_identity_and_each_memory_store_has_a_new_one(paths: KeyPaths) -> None:
    first = FilePeerStore(paths)
    first.trust(SERVER, key(1))
    second = FilePeerStore(paths)
    assert second.identity() == first.identity() == FilePeerStore(paths).identity()
    assert second.servers() == {SERVER: key(1)}
    assert {one.name for one in paths.identity.parent.iterdir()} == {"identity", "known_servers", "known_servers.lock"}
    assert MemoryPeerStore().identity() != MemoryPeerStore().identity()
    assert MemoryPeerStore(first.identity()).identity() == first.identity()


def test_with_a_loaded_identity_no_file_is_created(paths: KeyPaths, rng: random.Random) -> None:
    pair = new_keypair(rng.randbytes)
    assert FilePeerStore(paths, pair).identity() == pair
    assert not paths.identity.exists()


def test_each_call_reads_the_authorised_keys(paths: KeyPaths) -> None:
    store = FilePeerStore(paths)
    assert store.grant(key(7)) is None, "without a file no key is authorised"
    paths.authorized_keys.parent.mkdir()
    paths.authorized_keys.write_text(public_text(key(7)))
    paths.authorized_keys.chmod(0o600)
    assert store.grant(key(7)) == Grant()
    paths.authorized_keys.write_text("# no key\n")
    assert store.grant(key(7)) is None
    paths.authorized_keys.write_text("nonsense\n")
    with pytest.raises(DataFormatError, match="line 1"):
        store.grant(key(7))
