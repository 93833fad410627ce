"""The Noise Protocol Framework, revision 34, for 25519, AESGCM and SHA256; noiseprotocol.org/noise.html is normative.

    NOISE_XX        -> e             <- e, ee, s, es             -> s, se
    NOISE_XXPSK3    -> e             <- e, ee, s, es             -> s, se, psk

The module implements only these two patterns. They have no pre-messages, so both endpoints send their static keys,
encrypted, during the handshake. Entropy is an argument, so that tests can run the public vectors. An invalid message
changes nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from aeron_spark.errors import OptionError, TamperedError, TransportError, UsageError
from aeron_spark.protocol.keypair import KEY_BYTES, KeyPair, new_keypair

Entropy = Callable[[int], bytes]
"""Returns that many random bytes, as ``os.urandom`` does."""

TAG_BYTES: Final = 16  # KEY_BYTES is DHLEN, HASHLEN and the length of the cipher's key
MAX_NONCE: Final = 2**64 - 1  # reserved for REKEY, section 4.2
MAX_MESSAGE_BYTES: Final = 65_535  # section 3
MIN_SECRET_BYTES: Final = 16  # an attacker could guess a shorter shared secret

_FIELD_PRIME: Final = 2**255 - 19
_SECRET_LABEL: Final = b"aeron-spark endpoint 1 shared secret"


def shared_secret(pair: KeyPair, public: bytes) -> bytes:
    """Return the secret that ``pair`` shares with the owner of ``public``.

    Raises TamperedError for a key of low order, because every program would know the secret, and for a second encoding
    of a key, because an endpoint knows its peer by the bytes of the key.
    """
    check_public(public)
    try:
        secret = pair.exchange(public)
    except ValueError:
        secret = bytes(KEY_BYTES)
    if not any(secret):
        raise TamperedError(
            "the peer's key is of low order, so every program would know the shared secret",
            remedy="Check which program uses that address: aeron-spark does not send such a key.",
        )
    return secret


def check_public(public: bytes) -> None:
    """Raise TamperedError unless ``public`` has the 32 bytes of a public key in the encoding of RFC 7748."""
    if len(public) != KEY_BYTES or int.from_bytes(public, "little") >= _FIELD_PRIME:
        raise TamperedError(
            f"a public key of {len(public)} bytes is not the encoding of RFC 7748",
            remedy="Check which program uses that address: aeron-spark does not send such a key.",
        )


def derive_psk(secret: bytes) -> bytes:
    """Derive the pre-shared key from a configured shared secret. Raises OptionError for a short secret.

    An attacker that imitates the server can try any number of secrets offline, so the secret must not be a password.
    """
    if len(secret) < MIN_SECRET_BYTES:
        raise OptionError(
            f"the shared secret has {len(secret)} bytes, expected at least {MIN_SECRET_BYTES}: it could be guessed",
            remedy="Make one with: openssl rand -hex 32",
        )
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=_SECRET_LABEL).derive(secret)


def encode_nonce(counter: int) -> bytes:
    """Return the AESGCM nonce: 32 zero bits, then the counter, big-endian (section 12.4)."""
    return counter.to_bytes(12, "big")


def derive_next_key(key: bytes) -> bytes:
    """Return the key that follows ``key``: REKEY(k) of section 4.2."""
    return AESGCM(key).encrypt(encode_nonce(MAX_NONCE), bytes(KEY_BYTES), b"")[:KEY_BYTES]


class CipherState:
    """A key and its counter (section 5.1). It cannot exist without a key."""

    __slots__ = ("_cipher", "_key", "_nonce")

    def __init__(self, key: bytes, nonce: int = 0) -> None:
        self._key = key
        self._cipher = AESGCM(key)
        self._nonce = nonce

    def copy(self) -> CipherState:
        """Return a copy with the same key and an independent counter."""
        return CipherState(self._key, self._nonce)

    def encrypt(self, data: bytes, associated: bytes = b"") -> bytes:
        """Encrypt ``data`` with the next nonce. Raises TransportError if all nonces are used."""
        encrypted = self._cipher.encrypt(self._next_nonce(), data, associated)
        self._nonce += 1
        return encrypted

    def decrypt(self, data: bytes, associated: bytes = b"") -> bytes:
        """Decrypt ``data`` with the next nonce. If it raises TamperedError, the nonce stays unused."""
        try:
            decrypted = self._cipher.decrypt(self._next_nonce(), data, associated)
        except InvalidTag:
            raise TamperedError(
                "a handshake message failed its authentication",
                remedy="Use the same shared secret and release on both endpoints. Otherwise it was altered in transit.",
            ) from None
        self._nonce += 1
        return decrypted

    def _next_nonce(self) -> bytes:
        if self._nonce >= MAX_NONCE:
            raise TransportError("all nonces of a key are used", remedy="Connect again, for new keys.")
        return encode_nonce(self._nonce)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A handshake pattern: its name within the protocol's name, and the tokens of its messages."""

    name: str
    messages: tuple[tuple[str, ...], ...]

    @property
    def protocol(self) -> bytes:
        """The protocol's name, which both endpoints hash first."""
        return f"Noise_{self.name}_25519_AESGCM_SHA256".encode()

    @property
    def has_psk(self) -> bool:
        """Whether the pattern mixes in a pre-shared key."""
        return any("psk" in tokens for tokens in self.messages)


NOISE_XX: Final = Pattern("XX", (("e",), ("e", "ee", "s", "es"), ("s", "se")))
NOISE_XXPSK3: Final = Pattern("XXpsk3", (("e",), ("e", "ee", "s", "es"), ("s", "se", "psk")))


@dataclass(slots=True)
class _Symmetric:
    """SymmetricState of section 5.2. It is copied before a message is read, so that an invalid one changes nothing."""

    chaining: bytes
    hash: bytes
    cipher: CipherState | None = None

    def copy(self) -> _Symmetric:
        return _Symmetric(self.chaining, self.hash, None if self.cipher is None else self.cipher.copy())

    def mix_key(self, material: bytes) -> None:
        self.chaining, key = _hkdf(self.chaining, material, 2)
        self.cipher = CipherState(key)

    def mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.sha256(self.hash + data).digest()

    def mix_psk(self, psk: bytes) -> None:
        self.chaining, mixed, key = _hkdf(self.chaining, psk, 3)
        self.mix_hash(mixed)
        self.cipher = CipherState(key)

    def encrypt_and_hash(self, data: bytes) -> bytes:
        encrypted = data if self.cipher is None else self.cipher.encrypt(data, self.hash)
        self.mix_hash(encrypted)
        return encrypted

    def decrypt_and_hash(self, data: bytes) -> bytes:
        decrypted = data if self.cipher is None else self.cipher.decrypt(data, self.hash)
        self.mix_hash(data)
        return decrypted


class HandshakeState:
    """One endpoint of a handshake (section 5.3): ``write`` and ``read`` alternate, then follows ``split``."""

    def __init__(
        self,
        *,
        initiator: bool,
        static: KeyPair,
        entropy: Entropy,
        prologue: bytes = b"",
        psk: bytes | None = None,
        pattern: Pattern | None = None,
    ) -> None:
        """Start a handshake of ``pattern``; by default XXpsk3 with ``psk``, and XX without.

        The handshake calls ``entropy`` once, for the ephemeral key. Raises OptionError if psk and pattern do not agree.
        """
        self.pattern: Final = pattern or (NOISE_XX if psk is None else NOISE_XXPSK3)
        if self.pattern.has_psk != (psk is not None) or len(psk or bytes(KEY_BYTES)) != KEY_BYTES:
            raise OptionError(
                f"the pattern {self.pattern.name} and a pre-shared key of {len(psk or b'')} bytes do not agree",
                remedy=f"Use a psk of {KEY_BYTES} bytes with a psk pattern, and none with others.",
            )
        self._initiator: Final = initiator
        self._static: Final = static
        self._entropy: Final = entropy
        self._psk: Final = psk or b""
        self._ephemeral: KeyPair | None = None
        self._remote: dict[str, bytes] = {}
        self._messages_done = 0
        name = self.pattern.protocol
        start = name.ljust(KEY_BYTES, b"\0") if len(name) <= KEY_BYTES else hashlib.sha256(name).digest()
        self._symmetric = _Symmetric(start, start)
        self._symmetric.mix_hash(prologue)

    @property
    def is_finished(self) -> bool:
        """Whether all messages were written and read, so that ``split`` can be called."""
        return self._messages_done == len(self.pattern.messages)

    @property
    def first_message_bytes(self) -> int:
        """The length of message 1 with an empty payload, which has a tag only with a psk."""
        return KEY_BYTES + TAG_BYTES * self.pattern.has_psk

    @property
    def remote_static(self) -> bytes:
        """The peer's static key. Raises UsageError until its message was read."""
        if "s" not in self._remote:
            raise UsageError("the peer's static key has not arrived yet", remedy="Read its message first.")
        return self._remote["s"]

    @property
    def handshake_hash(self) -> bytes:
        """The hash of the whole handshake, equal at both endpoints and unique for each handshake."""
        return self._symmetric.hash

    def write(self, payload: bytes = b"") -> bytes:
        """Return the next message. Raises UsageError if the peer must write it."""
        tokens = self._next_tokens(self._initiator)
        parts = []
        for token in tokens:
            match token:
                case "e":
                    self._ephemeral = new_keypair(self._entropy)
                    self._mix_ephemeral(self._ephemeral.public)
                    parts.append(self._ephemeral.public)
                case "s":
                    parts.append(self._symmetric.encrypt_and_hash(self._static.public))
                case _:
                    self._mix(token)
        parts.append(self._symmetric.encrypt_and_hash(payload))
        self._messages_done += 1
        return b"".join(parts)

    def read(self, message: bytes) -> bytes:
        """Read the peer's next message, and return its payload.

        Raises TamperedError for an invalid message, which changes nothing. Raises UsageError if this endpoint must
        write the next message.
        """
        tokens = self._next_tokens(not self._initiator)
        if len(message) > MAX_MESSAGE_BYTES:
            raise _invalid_length(len(message))
        before, remote = self._symmetric, dict(self._remote)
        self._symmetric = before.copy()
        try:
            remainder = self._read_tokens(tokens, message)
            payload = self._symmetric.decrypt_and_hash(remainder)
        except TamperedError:
            self._symmetric, self._remote = before, remote
            raise
        self._messages_done += 1
        return payload

    def split(self) -> tuple[bytes, bytes]:
        """Return this endpoint's keys for sending and for receiving. Raises UsageError before the last message."""
        if not self.is_finished:
            raise UsageError("the handshake is not finished", remedy="Exchange the remaining messages first.")
        first, second = _hkdf(self._symmetric.chaining, b"", 2)
        return (first, second) if self._initiator else (second, first)

    def _next_tokens(self, by_initiator: bool) -> tuple[str, ...]:
        # the initiator writes the messages 0, 2, ...
        if self.is_finished or (self._messages_done % 2 == 0) != by_initiator:
            raise UsageError(
                f"this endpoint cannot write or read message {self._messages_done + 1} of {self.pattern.name} now",
                remedy="Alternate between write and read; the initiator writes first.",
            )
        return self.pattern.messages[self._messages_done]

    def _read_tokens(self, tokens: tuple[str, ...], message: bytes) -> bytes:
        remainder = message
        for token in tokens:
            match token:
                case "e":
                    public, remainder = _split_at(remainder, KEY_BYTES)
                    check_public(public)
                    self._remote["e"] = public
                    self._mix_ephemeral(public)
                case "s":
                    key_bytes = KEY_BYTES + TAG_BYTES * (self._symmetric.cipher is not None)
                    encrypted, remainder = _split_at(remainder, key_bytes)
                    self._remote["s"] = self._symmetric.decrypt_and_hash(encrypted)
                case _:
                    self._mix(token)
        return remainder

    def _mix_ephemeral(self, public: bytes) -> None:
        self._symmetric.mix_hash(public)
        if self.pattern.has_psk:
            self._symmetric.mix_key(public)  # section 9.2: otherwise the psk would be mixed with the same key twice

    def _mix(self, token: str) -> None:
        if token == "psk":
            self._symmetric.mix_psk(self._psk)
            return
        # the first letter of a token names the initiator's key, the second the responder's
        own, peers = (token[0], token[1]) if self._initiator else (token[1], token[0])
        key = self._ephemeral if own == "e" else self._static
        if key is None:
            raise UsageError(
                f"{self.pattern.name} uses an ephemeral key before it is made", remedy="Correct the pattern."
            )
        self._symmetric.mix_key(shared_secret(key, self._remote[peers]))


def _hkdf(chaining: bytes, material: bytes, outputs: int) -> list[bytes]:
    """Return the outputs of HKDF (section 4.3), which is RFC 5869 with an empty info."""
    secret = hmac.digest(chaining, material, "sha256")
    keys: list[bytes] = []
    for number in range(1, outputs + 1):
        keys.append(hmac.digest(secret, (keys[-1] if keys else b"") + bytes([number]), "sha256"))
    return keys


def _split_at(data: bytes, length: int) -> tuple[bytes, bytes]:
    if len(data) < length:
        raise _invalid_length(len(data))
    return data[:length], data[length:]


def _invalid_length(length: int) -> TamperedError:
    return TamperedError(
        f"{length} bytes of a handshake message are too few for its keys, or too many for a message",
        remedy="Check which program uses that address. Otherwise the message was altered in transit.",
    )
