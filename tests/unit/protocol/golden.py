"""The golden vectors of docs/endpoint-protocol.md: whole handshakes and frames, from entropy that is stored with them.

``python -m tests.unit.protocol.golden`` writes what is missing in tests/golden/endpoint. What is there is what version
1 is, and is never written over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from aeron_spark.connection.link import OPEN
from aeron_spark.protocol import client_handshake as client_side
from aeron_spark.protocol import server_handshake as server_side
from aeron_spark.protocol.client_handshake import ClientHandshake
from aeron_spark.protocol.frame_cipher import FrameEncryptor, KeyLimits
from aeron_spark.protocol.frames import OutgoingRecord, RecordKind, encode
from aeron_spark.protocol.handshake_packets import HelloPacket, decode, prologue
from aeron_spark.protocol.handshake_payloads import encode_payload
from aeron_spark.protocol.keypair import KeyPair, keypair_from
from aeron_spark.protocol.noise import derive_psk
from aeron_spark.protocol.refusals import Refusal
from aeron_spark.protocol.retry_cookies import Cookies
from aeron_spark.protocol.server_handshake import ServerHandshake, ServerIdentity
from tests.unit.protocol.handshakes import ACK, ADDRESS, DONE, NOW, SERVER_HELLO, agree, one

FOLDER: Final = Path(__file__).parents[3] / "tests" / "golden" / "endpoint"
CLIENT: Final = keypair_from(bytes(range(32)))
SERVER: Final = keypair_from(bytes(range(100, 132)))
SECRET: Final = b"a shared secret of the two sides"
LIMIT: Final = KeyLimits(frames=2)  # so that the vectors contain a change of keys

# name, shared secret, address (None: IPC), refused after DONE
HANDSHAKES: Final[tuple[tuple[str, bytes | None, str | None, Refusal | None], ...]] = (
    ("over UDP", None, ADDRESS, None),
    ("over UDP and IPv6, with a shared secret", SECRET, "2001:db8::7", None),
    ("over IPC", None, None, None),
    ("refused after DONE", None, ADDRESS, Refusal("full", "Server is full")),
)

RECORDS: Final[tuple[tuple[str, int, int, list[tuple[int, int, bytes]]], ...]] = (
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
        "a question whether what came before was delivered",
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


class Draws:
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


def handshake(name: str, secret: bytes | None, address: str | None, refusal: Refusal | None) -> dict[str, Any]:
    """Do a handshake of a client and a server, and return every byte."""
    here, there = Draws(f"client {name}"), Draws(f"server {name}")
    psk = None if secret is None else derive_psk(secret)
    identity = ServerIdentity(SERVER, SERVER_HELLO, Cookies(there, NOW), there, psk=psk)
    client = ClientHandshake(identity=CLIENT, entropy=here, verify=agree, done=DONE, server="the server", psk=psk)
    noted: dict[str, Any] = {
        "name": name,
        "client": _pair(CLIENT),
        "server": _pair(SERVER),
        "shared_secret": None if secret is None else secret.hex(),
        "psk": None if psk is None else psk.hex(),
        "address": address,
    }
    hello = one(client.start(NOW), client_side.Send).packet
    noted["hello"] = hello.hex()
    packet = decode(hello)
    assert isinstance(packet, HelloPacket)
    noted["prologue"] = prologue(packet.connect_key).hex()
    image = ServerHandshake(identity, address, NOW)
    actions = image.packet(hello, NOW)
    if address is not None:
        noted["retry"] = one(actions, server_side.Reject).reason
        hello = one(client.hint(noted["retry"], NOW), client_side.Send).packet
        noted["hello_with_cookie"] = hello.hex()
        image = ServerHandshake(identity, address, NOW)
        actions = image.packet(hello, NOW)
    one(actions, server_side.Admit)
    image.admitted(NOW)
    hello_ack = one(image.path_ready(NOW), server_side.Send).packet
    done = one(client.packet(hello_ack, NOW), client_side.Send).packet
    one(image.packet(done, NOW), server_side.Authenticate)
    noted |= {
        "server_hello": encode_payload(SERVER_HELLO).hex(),
        "hello_ack": hello_ack.hex(),
        "client_done": encode_payload(DONE).hex(),
        "done": done.hex(),
    }
    noted |= _refused(image, refusal) if refusal is not None else _accepted(client, image)
    # in the order of use: connect key, cookie secret, ephemeral key
    noted["client_entropy"], noted["server_entropy"] = here.drawn, there.drawn
    return noted


def _refused(image: ServerHandshake, refusal: Refusal) -> dict[str, Any]:
    packet = one(image.refuse(refusal, NOW), server_side.Send).packet
    return {"code": refusal.code, "text": refusal.text, "failed": packet.hex()}


def _accepted(client: ClientHandshake, image: ServerHandshake) -> dict[str, Any]:
    sent = image.accept(ACK, NOW)
    done_ack = one(sent, server_side.Send).packet
    there = one(sent, server_side.ClientAccepted)
    here = one(client.packet(done_ack, NOW), client_side.HandshakeAccepted)
    opening = b"".join(encode(0, 0, [(RecordKind.OPEN, 0, OPEN.pack(0, 131_072))]))
    return {
        "done_ack_payload": encode_payload(ACK).hex(),
        "done_ack": done_ack.hex(),
        "handshake_hash": there.handshake_hash.hex(),
        "first_frame_of_client": bytes(here.encryptor.encrypt(opening)).hex(),
        "first_frame_of_server": bytes(there.encryptor.encrypt(opening)).hex(),
    }


def _pair(pair: KeyPair) -> dict[str, str]:
    return {"private": pair.private.hex(), "public": pair.public.hex()}


def frames() -> list[dict[str, Any]]:
    """Encrypt the plaintexts of RECORDS in order, with a key that is replaced after every second frame."""
    key = hashlib.sha256(b"a key").digest()
    encryptor = FrameEncryptor(key, LIMIT)
    found = []
    for name, ack, first, records in RECORDS:
        publication: list[OutgoingRecord] = list(records)
        plaintext = b"".join(encode(ack, first, publication))
        counter = encryptor.counter
        frame = bytes(encryptor.encrypt(plaintext))
        found.append(
            {
                "name": name,
                "ack": ack,
                "first": first,
                "records": [[int(kind), flags, payload.hex()] for kind, flags, payload in records],
                "plaintext": plaintext.hex(),
                "key_of_epoch_0": key.hex(),
                "frames_of_a_key": LIMIT.frames,
                "counter": counter,
                "epoch": encryptor.epoch,
                "frame": frame.hex(),
            }
        )
    return found


FILES: Final[dict[str, Callable[[], list[dict[str, Any]]]]] = {
    "handshakes-1.json": lambda: [handshake(*case) for case in HANDSHAKES],
    "frames-1.json": frames,
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file, make in FILES.items():
        if not (FOLDER / file).exists():
            (FOLDER / file).write_text(json.dumps({"protocol": 1, "vectors": make()}, indent=1) + "\n")
