"""The golden vectors of docs/endpoint-protocol.md: whole handshakes and frames, with the entropy they were made from.

``python -m tests.unit.protocol.golden`` writes the files that are missing in tests/golden/endpoint. It never overwrites
a file, because the existing vectors define version 1.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from aeron_spark.endpoint.links import OPEN
from aeron_spark.protocol import client_handshake as client_side
from aeron_spark.protocol import server_handshake as server_side
from aeron_spark.protocol.client_handshake import ClientHandshake, ClientIdentity
from aeron_spark.protocol.frame_cipher import CipherLimits, FrameEncryptor
from aeron_spark.protocol.frames import OutgoingRecord, RecordKind, encode
from aeron_spark.protocol.handshake_packets import Cookies, HelloPacket, decode, prologue
from aeron_spark.protocol.handshake_payloads import encode_payload
from aeron_spark.protocol.keypair import KeyPair, keypair_from
from aeron_spark.protocol.noise import derive_psk
from aeron_spark.protocol.server_handshake import ServerHandshake, ServerIdentity
from aeron_spark.protocol.sources import Refusal
from tests.unit.protocol.handshakes import ACK, ADDRESS, DONE, NOW, SERVER_HELLO, agree, one

FOLDER: Final = Path(__file__).parents[3] / "tests" / "golden" / "endpoint"
CLIENT: Final = keypair_from(bytes(range(32)))
SERVER: Final = keypair_from(bytes(range(100, 132)))
SECRET: Final = b"a shared secret of the two sides"
KEY_LIMITS: Final = CipherLimits(frames=2)  # so that the vectors contain changes of the key

# name, shared secret, the client's address (None: IPC), refusal after DONE
HANDSHAKE_CASES: Final[tuple[tuple[str, bytes | None, str | None, Refusal | None], ...]] = (
    ("over UDP", None, ADDRESS, None),
    ("over UDP and IPv6, with a shared secret", SECRET, "2001:db8::7", None),
    ("over IPC", None, None, None),
    ("refused after DONE", None, ADDRESS, Refusal("full", "Server is full")),
)

FRAME_CASES: Final[tuple[tuple[str, int, int, list[tuple[int, int, bytes]]], ...]] = (
    ("OPEN of a new session", 0, 0, [(RecordKind.OPEN, 0, OPEN.pack(0, 131_072))]),
    ("OPEN of a resumed session", 0, 0, [(RecordKind.OPEN, 0, OPEN.pack(5, 131_072))]),
    ("a message", 0, 0, [(RecordKind.MESSAGE, 0, bytes.fromhex("0005") + b"hello")]),
    (
        "two messages, the second with acknowledgement",
        3,
        1,
        [
            (RecordKind.MESSAGE, 0, bytes.fromhex("000301")),
            (RecordKind.MESSAGE_ACK_WANTED, 0, (1).to_bytes(8, "big") + bytes.fromhex("000302")),
        ],
    ),
    (
        "a request to confirm that earlier messages were delivered",
        3,
        3,
        [(RecordKind.MESSAGE_ACK_WANTED, 0, (2).to_bytes(8, "big"))],
    ),
    ("delivered", 4, 9, [(RecordKind.DELIVERED, 0, (2).to_bytes(8, "big"))]),
    ("an acknowledgement", 4, 10, [(RecordKind.ACK, 0, b"")]),
    ("a ping", 4, 10, [(RecordKind.PING, 0, (7).to_bytes(8, "big"))]),
    ("its pong", 10, 4, [(RecordKind.PONG, 0, (7).to_bytes(8, "big"))]),
    ("eight messages: a batch", 4, 10, [(RecordKind.MESSAGE, 0, bytes([0, 3, number])) for number in range(8)]),
    ("seven messages: no batch", 4, 18, [(RecordKind.MESSAGE, 0, bytes([0, 3, number])) for number in range(7)]),
    ("close everything", 4, 25, [(RecordKind.CLOSE, 0, bytes([0]))]),
    ("close, and keep the session", 4, 25, [(RecordKind.CLOSE, 0, bytes([1]))]),
)


class RecordedEntropy:
    """Predictable entropy that records its output."""

    def __init__(self, label: str) -> None:
        self._label = label
        self.drawn: list[str] = []

    def __call__(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            name = f"{self._label} {len(self.drawn)} {len(data)}"
            data += hashlib.sha256(name.encode()).digest()
        self.drawn.append(data[:count].hex())
        return data[:count]


def make_handshake_vector(
    name: str, secret: bytes | None, address: str | None, refusal: Refusal | None
) -> dict[str, Any]:
    """Run a handshake of a client and a server, and return the bytes of each packet."""
    client_entropy, server_entropy = RecordedEntropy(f"client {name}"), RecordedEntropy(f"server {name}")
    psk = None if secret is None else derive_psk(secret)
    identity = ServerIdentity(SERVER, SERVER_HELLO, Cookies(server_entropy), server_entropy, psk=psk)
    client = ClientHandshake(ClientIdentity(CLIENT, agree, "the server", client_entropy, psk), DONE)
    vector: dict[str, Any] = {
        "name": name,
        "client": _key_pair_fields(CLIENT),
        "server": _key_pair_fields(SERVER),
        "shared_secret": None if secret is None else secret.hex(),
        "psk": None if psk is None else psk.hex(),
        "address": address,
    }
    hello = one(client.start(NOW), client_side.Send).packet
    vector["hello"] = hello.hex()
    packet = decode(hello)
    assert isinstance(packet, HelloPacket)
    vector["prologue"] = prologue(packet.connect_key).hex()
    server = ServerHandshake(identity, address, NOW)
    actions = server.packet(hello, NOW)
    if address is not None:
        vector["retry"] = one(actions, server_side.Reject).reason
        hello = one(client.hint(vector["retry"], NOW), client_side.Send).packet
        vector["hello_with_cookie"] = hello.hex()
        server = ServerHandshake(identity, address, NOW)
        actions = server.packet(hello, NOW)
    one(actions, server_side.Admit)
    server.admitted(NOW)
    hello_ack = one(server.path_ready(NOW), server_side.Send).packet
    done = one(client.packet(hello_ack, NOW), client_side.Send).packet
    one(server.packet(done, NOW), server_side.Authenticate)
    vector |= {
        "server_hello": encode_payload(SERVER_HELLO).hex(),
        "hello_ack": hello_ack.hex(),
        "client_done": encode_payload(DONE).hex(),
        "done": done.hex(),
    }
    vector |= _refusal_fields(server, refusal) if refusal is not None else _acceptance_fields(client, server)
    # in the order of use: the client's connect key or the server's cookie secret, then the ephemeral key
    vector["client_entropy"], vector["server_entropy"] = client_entropy.drawn, server_entropy.drawn
    return vector


def _refusal_fields(server: ServerHandshake, refusal: Refusal) -> dict[str, Any]:
    packet = one(server.refuse(refusal, NOW), server_side.Send).packet
    return {"code": refusal.code, "text": refusal.text, "failed": packet.hex()}


def _acceptance_fields(client: ClientHandshake, server: ServerHandshake) -> dict[str, Any]:
    sent = server.accept(ACK, NOW)
    done_ack = one(sent, server_side.Send).packet
    server_accepted = one(sent, server_side.ClientAccepted)
    client_accepted = one(client.packet(done_ack, NOW), client_side.HandshakeAccepted)
    opening = b"".join(encode(0, 0, [(RecordKind.OPEN, 0, OPEN.pack(0, 131_072))]))
    return {
        "done_ack_payload": encode_payload(ACK).hex(),
        "done_ack": done_ack.hex(),
        "handshake_hash": server_accepted.handshake_hash.hex(),
        "first_frame_of_client": bytes(client_accepted.encryptor.encrypt(opening)).hex(),
        "first_frame_of_server": bytes(server_accepted.encryptor.encrypt(opening)).hex(),
    }


def _key_pair_fields(pair: KeyPair) -> dict[str, str]:
    return {"private": pair.private.hex(), "public": pair.public.hex()}


def make_frame_vectors() -> list[dict[str, Any]]:
    """Encrypt the plaintexts of FRAME_CASES in order, with a key that is replaced after every second frame."""
    key = hashlib.sha256(b"a key").digest()
    encryptor = FrameEncryptor(key, KEY_LIMITS)
    vectors = []
    for name, ack, first, records in FRAME_CASES:
        publication: list[OutgoingRecord] = list(records)
        plaintext = b"".join(encode(ack, first, publication))
        counter = encryptor.counter
        frame = bytes(encryptor.encrypt(plaintext))
        vectors.append(
            {
                "name": name,
                "ack": ack,
                "first": first,
                "records": [[int(kind), flags, payload.hex()] for kind, flags, payload in records],
                "plaintext": plaintext.hex(),
                "key_of_epoch_0": key.hex(),
                "frames_of_a_key": KEY_LIMITS.frames,
                "counter": counter,
                "epoch": encryptor.epoch,
                "frame": frame.hex(),
            }
        )
    return vectors


FILES: Final[dict[str, Callable[[], list[dict[str, Any]]]]] = {
    "handshakes-1.json": lambda: [make_handshake_vector(*case) for case in HANDSHAKE_CASES],
    "frames-1.json": make_frame_vectors,
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file, make in FILES.items():
        if not (FOLDER / file).exists():
            (FOLDER / file).write_text(json.dumps({"protocol": 1, "vectors": make()}, indent=1) + "\n")
