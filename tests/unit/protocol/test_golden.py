"""The golden vectors that define version 1 of the endpoint protocol. A change of a byte needs another version."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from noise.connection import Keypair, NoiseConnection

from aeron_spark.protocol.frame_cipher import FrameDecryptor
from aeron_spark.protocol.frames import decode
from tests.unit.protocol.golden import FILES, FOLDER, KEY_LIMITS


def read_vectors(file: str) -> list[dict[str, Any]]:
    document = json.loads((FOLDER / file).read_text())
    assert document["protocol"] == 1
    vectors: list[dict[str, Any]] = document["vectors"]
    return vectors


def vector_params(file: str) -> list[Any]:
    return [pytest.param(vector, id=vector["name"]) for vector in read_vectors(file)]


@pytest.mark.parametrize("file", FILES)
def test_the_code_creates_the_stored_vectors_of_version_1(file: str) -> None:
    created = FILES[file]()
    stored = read_vectors(file)
    assert [vector["name"] for vector in created] == [vector["name"] for vector in stored]
    for created_vector, stored_vector in zip(created, stored, strict=True):
        assert created_vector == stored_vector


def test_the_folder_of_vectors_has_no_other_files() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(FILES)


@pytest.mark.parametrize("vector", vector_params("handshakes-1.json"))
def test_packets_begin_with_their_type_and_those_of_the_client_have_1100_bytes(vector: dict[str, Any]) -> None:
    packet_types = {"hello": 1, "hello_with_cookie": 1, "hello_ack": 2, "done": 3, "done_ack": 4, "failed": 5}
    for name, number in packet_types.items():
        if name in vector:
            packet = bytes.fromhex(vector[name])
            assert packet[:4] == b"AS" + bytes([1, number])
            assert len(packet) <= 1100
            assert len(packet) == 1100 or name not in ("hello", "hello_with_cookie", "done")
    # a second HELLO differs from the first only by its cookie
    if vector["address"] is not None:
        first, second = bytes.fromhex(vector["hello"]), bytes.fromhex(vector["hello_with_cookie"])
        at = 21 + first[20]
        assert first[:at] == second[:at]
        assert (first[at], second[at]) == (0, 17)
        assert not any(first[at:])
        assert not any(second[at + 18 :])


@pytest.mark.filterwarnings("ignore:One of ephemeral keypairs is already set")
@pytest.mark.parametrize("vector", vector_params("handshakes-1.json"))
def test_an_independent_implementation_of_noise_creates_the_same_handshake(vector: dict[str, Any]) -> None:
    """The independent implementation is the client, with the ephemeral key of the vector."""
    peer = NoiseConnection.from_name(f"Noise_XX{'psk3' if vector['psk'] else ''}_25519_AESGCM_SHA256".encode())
    peer.set_as_initiator()
    peer.set_prologue(bytes.fromhex(vector["prologue"]))
    peer.set_keypair_from_private_bytes(Keypair.STATIC, bytes.fromhex(vector["client"]["private"]))
    peer.set_keypair_from_private_bytes(Keypair.EPHEMERAL, bytes.fromhex(vector["client_entropy"][1]))
    if vector["psk"]:
        peer.set_psks(bytes.fromhex(vector["psk"]))
    peer.start_handshake()
    hello, hello_ack = bytes.fromhex(vector["hello"]), bytes.fromhex(vector["hello_ack"])
    assert hello[4:20] == bytes.fromhex(vector["client_entropy"][0])
    assert bytes(peer.write_message()) == hello[21 : 21 + hello[20]]
    assert hello_ack[4:20] == hashlib.sha256(hello[4:20]).digest()[:16]
    assert bytes(peer.read_message(hello_ack[20:])).hex() == vector["server_hello"]
    client_done = bytes.fromhex(vector["client_done"])
    padded = (len(client_done).to_bytes(2, "big") + client_done).ljust(1016, b"\0")
    assert bytes(peer.write_message(padded)) == bytes.fromhex(vector["done"])[20:]
    first = bytes.fromhex(vector.get("done_ack") or vector["failed"])[20:]
    key = bytes(peer.noise_protocol.cipher_state_decrypt.k)
    payload = AESGCM(key).decrypt(bytes(12), first[16:], first[:16])
    assert first[:16] == bytes([1]) + bytes(15)
    if "failed" in vector:
        assert vector["text"].encode() in payload
        return
    assert payload.hex() == vector["done_ack_payload"]
    assert peer.get_handshake_hash().hex() == vector["handshake_hash"]
    sending = bytes(peer.noise_protocol.cipher_state_encrypt.k)
    frame = bytes.fromhex(vector["first_frame_of_client"])
    assert (
        AESGCM(sending).decrypt(bytes(12), frame[16:], frame[:16])[16:]
        == bytes([64, 0, 0, 0, 0, 12]) + bytes(8) + b"\0\2\0\0"
    )


@pytest.mark.parametrize("vector", vector_params("frames-1.json"))
def test_a_frame_can_be_decrypted_as_the_document_specifies(vector: dict[str, Any]) -> None:
    """Without the package's decryptor: header, nonce, associated data, and Noise's REKEY."""
    key, frame = bytes.fromhex(vector["key_of_epoch_0"]), bytes.fromhex(vector["frame"])
    for _ in range(vector["counter"] // vector["frames_of_a_key"]):
        key = AESGCM(key).encrypt(b"\0\0\0\0" + b"\xff" * 8, bytes(32), b"")[:32]
    counter = vector["counter"].to_bytes(8, "big")
    assert frame[:16] == bytes([1, 0]) + vector["epoch"].to_bytes(2, "big") + bytes(4) + counter
    assert AESGCM(key).decrypt(bytes(4) + counter, frame[16:], frame[:16]).hex() == vector["plaintext"]


def test_the_frames_of_the_vectors_are_consecutive_frames_of_one_direction() -> None:
    stored = read_vectors("frames-1.json")
    decryptor = FrameDecryptor(bytes.fromhex(stored[0]["key_of_epoch_0"]), KEY_LIMITS)
    for vector in stored:
        frame = decode(decryptor.decrypt(bytes.fromhex(vector["frame"])))
        records = [[kind, flags, bytes(payload).hex()] for kind, flags, payload in frame.records]
        assert (frame.ack, frame.first, records) == (vector["ack"], vector["first"], vector["records"])
