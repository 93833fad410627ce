"""The Noise Protocol Framework, revision 34, for 25519, AESGCM and SHA256; noiseprotocol.org/noise.html is normative.

    NOISE_XX        -> e             <- e, ee, s, es             -> s, se
    NOISE_XXPSK3    -> e             <- e, ee, s, es             -> s, se, psk

Only what those patterns need is here: no pre-messages, so both static keys travel, encrypted, in the handshake.
Entropy is an argument, so that the public vectors run. A message that cannot be read changes nothing.
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
"""Gives that many bytes nobody can foresee, as ``os.urandom`` does."""

TAG_BYTES: Final = 16  # and KEY_BYTES is DHLEN, HASHLEN and the cipher's key alike
MAX_NONCE: Final = 2**64 - 1  # reserved for REKEY, section 4.2
MAX_MESSAGE_BYTES: Final = 65_535  # section 3
MIN_SECRET_BYTES: Final = 16  # a shorter shared secret can be found by trying

_FIELD_PRIME: Final = 2**255 - 19
_SECRET_LABEL: Final = b"aeron-spark endpoint 1 shared secret"


def shared_secret(pair: KeyPair, public: bytes) -> bytes:
    """The secret that ``pair`` shares with the owner of ``public``.

    Raises TamperedError for a key of low order, with which everybody shares the same secret, and for a second spelling
    of a key: a peer is known by its bytes.
    """
    check_public(public)
    try:
        secret = pair.exchange(public)
    except ValueError:
        secret = bytes(KEY_BYTES)
    if not any(secret):
        raise TamperedError(
            "the other side's key is of low order, so that everybody would know the shared secret",
            remedy="No honest program sends such a key: see who answers at that address",
        )
    return secret


def check_public(public: bytes) -> None:
    """Raise TamperedError unless these are the 32 bytes of a public key, in the one spelling that RFC 7748 encodes."""
    if len(public) != KEY_BYTES or int.from_bytes(public, "little") >= _FIELD_PRIME:
        raise TamperedError(
            f"a public key of {len(public)} bytes is not the encoding of RFC 7748",
            remedy="No honest program sends such a key: see who answers at that address",
        )


def derive_psk(secret: bytes) -> bytes:
    """The pre-shared key that a configured shared secret stands for. Raises OptionError if it is short enough to guess.

    Whoever plays the server can try secrets against what a client sent, at leisure: so it must not be a password.
    """
    if len(secret) < MIN_SECRET_BYTES:
        raise OptionError(
            f"the shared secret has {len(secret)} bytes, fewer than {MIN_SECRET_BYTES}: it could be guessed",
            remedy="Make one with: openssl rand -hex 32",
        )
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=_SECRET_LABEL).derive(secret)


def encode_nonce(counter: int) -> bytes:
    """The AESGCM nonce: 32 zero bits, then the counter, big-endian (section 12.4)."""
    return counter.to_bytes(12, "big")


def derive_next_key(key: bytes) -> bytes:
    """REKEY(k) of section 4.2: the key that comes after ``key``."""
    return AESGCM(key).encrypt(encode_nonce(MAX_NONCE), bytes(KEY_BYTES), b"")[:KEY_BYTES]


class CipherState:
    """A key and its counter (section 5.1). It cannot exist without a key."""

    __slots__ = ("_cipher", "_key", "_nonce")

    def __init__(self, key: bytes, nonce: int = 0) -> None:
        self._key = key
        self._cipher = AESGCM(key)
        self._nonce = nonce

    def copy(self) -> CipherState:
        """The same key at the same place, counting on by itself."""
        return CipherState(self._key, self._nonce)

    def encrypt(self, data: bytes, associated: bytes = b"") -> bytes:
        """Seal ``data`` with the next nonce. Raises TransportError when there is none left."""
        sealed = self._cipher.encrypt(self._next_nonce(), data, associated)
        self._nonce += 1
        return sealed

    def decrypt(self, data: bytes, associated: bytes = b"") -> bytes:
        """Open ``data`` with the next nonce. Raises TamperedError, and then the nonce is still the next."""
        try:
            opened = self._cipher.decrypt(self._next_nonce(), data, associated)
        except InvalidTag:
            raise TamperedError(
                "a handshake message failed its authentication",
                remedy="It was changed on its way, or the two sides have different keys, shared secrets or releases",
            ) from None
        self._nonce += 1
        return opened

    def _next_nonce(self) -> bytes:
        if self._nonce >= MAX_NONCE:
            raise TransportError("all nonces of a key are used", remedy="Connect again: that makes new keys")
        return encode_nonce(self._nonce)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A handshake pattern: its name as it stands in the protocol's name, and the tokens of its messages."""

    name: str
    messages: tuple[tuple[str, ...], ...]

    @property
    def protocol(self) -> bytes:
        """The whole name, which is the first thing both sides hash."""
        return f"Noise_{self.name}_25519_AESGCM_SHA256".encode()

    @property
    def has_psk(self) -> bool:
        """Whether the pattern mixes in a pre-shared key."""
        return any("psk" in tokens for tokens in self.messages)


NOISE_XX: Final = Pattern("XX", (("e",), ("e", "ee", "s", "es"), ("s", "se")))
NOISE_XXPSK3: Final = Pattern("XXpsk3", (("e",), ("e", "ee", "s", "es"), ("s", "se", "psk")))


@dataclass(slots=True)
class _Symmetric:
    """SymmetricState of section 5.2, copied before a message is read so that a bad one changes nothing."""

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

    def seal(self, data: bytes) -> bytes:
        sealed = data if self.cipher is None else self.cipher.encrypt(data, self.hash)
        self.mix_hash(sealed)
        return sealed

    def open(self, data: bytes) -> bytes:
        opened = data if self.cipher is None else self.cipher.decrypt(data, self.hash)
        self.mix_hash(data)
        return opened


class HandshakeState:
    """One side of a handshake (section 5.3): ``write`` and ``read`` in turn, then ``split``."""

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
        """Begin a handshake: with ``psk`` as XXpsk3, without as XX, or by a ``pattern``.

        ``entropy`` is asked once, for the ephemeral key. Raises OptionError if psk and pattern do not agree.
        """
        self.pattern: Final = pattern or (NOISE_XX if psk is None else NOISE_XXPSK3)
        if self.pattern.has_psk != (psk is not None) or len(psk or bytes(KEY_BYTES)) != KEY_BYTES:
            raise OptionError(
                f"the pattern {self.pattern.name} and a pre-shared key of {len(psk or b'')} bytes do not agree",
                remedy=f"A psk has {KEY_BYTES} bytes, and stands in the name of its pattern",
            )
        self._initiator: Final = initiator
        self._static: Final = static
        self._entropy: Final = entropy
        self._psk: Final = psk or b""
        self._ephemeral: KeyPair | None = None
        self._remote: dict[str, bytes] = {}
        self._done = 0
        name = self.pattern.protocol
        start = name.ljust(KEY_BYTES, b"\0") if len(name) <= KEY_BYTES else hashlib.sha256(name).digest()
        self._symmetric = _Symmetric(start, start)
        self._symmetric.mix_hash(prologue)

    @property
    def finished(self) -> bool:
        """Whether all messages were written and read, so that ``split`` may be called."""
        return self._done == len(self.pattern.messages)

    @property
    def first_message_bytes(self) -> int:
        """How long message 1 is with an empty payload: with a psk even that is authenticated."""
        return KEY_BYTES + TAG_BYTES * self.pattern.has_psk

    @property
    def remote_static(self) -> bytes:
        """The other side's static key. Raises UsageError before it was read."""
        if "s" not in self._remote:
            raise UsageError("the other side's static key has not arrived yet", remedy="Read its message first")
        return self._remote["s"]

    @property
    def handshake_hash(self) -> bytes:
        """What both sides agree on when they agree on everything; it names this handshake and no other."""
        return self._symmetric.hash

    def write(self, payload: bytes = b"") -> bytes:
        """Give the next message. Raises UsageError when it is the other side's turn."""
        tokens = self._turn(self._initiator)
        parts = []
        for token in tokens:
            match token:
                case "e":
                    self._ephemeral = new_keypair(self._entropy)
                    self._mix_ephemeral(self._ephemeral.public)
                    parts.append(self._ephemeral.public)
                case "s":
                    parts.append(self._symmetric.seal(self._static.public))
                case _:
                    self._mix(token)
        parts.append(self._symmetric.seal(payload))
        self._done += 1
        return b"".join(parts)

    def read(self, message: bytes) -> bytes:
        """Read the other side's next message and give its payload.

        Raises TamperedError if it is not one, and then nothing has changed; UsageError when it is our own turn.
        """
        tokens = self._turn(not self._initiator)
        if len(message) > MAX_MESSAGE_BYTES:
            raise _short(len(message))
        before, remote = self._symmetric, dict(self._remote)
        self._symmetric = before.copy()
        try:
            rest = self._read_tokens(tokens, message)
            payload = self._symmetric.open(rest)
        except TamperedError:
            self._symmetric, self._remote = before, remote
            raise
        self._done += 1
        return payload

    def split(self) -> tuple[bytes, bytes]:
        """Give the keys for what this side sends and for what it receives. Raises UsageError before the end."""
        if not self.finished:
            raise UsageError("the handshake is not finished", remedy="Exchange the messages that are left first")
        first, second = _hkdf(self._symmetric.chaining, b"", 2)
        return (first, second) if self._initiator else (second, first)

    def _turn(self, ours: bool) -> tuple[str, ...]:
        # the initiator writes the messages 0, 2, ...
        if self.finished or (self._done % 2 == 0) != ours:
            raise UsageError(
                f"message {self._done + 1} of {self.pattern.name} is not for this side to write or read now",
                remedy="Take turns: the initiator writes first",
            )
        return self.pattern.messages[self._done]

    def _read_tokens(self, tokens: tuple[str, ...], message: bytes) -> bytes:
        rest = message
        for token in tokens:
            match token:
                case "e":
                    public, rest = _cut(rest, KEY_BYTES)
                    check_public(public)
                    self._remote["e"] = public
                    self._mix_ephemeral(public)
                case "s":
                    sealed, rest = _cut(rest, KEY_BYTES + TAG_BYTES * (self._symmetric.cipher is not None))
                    self._remote["s"] = self._symmetric.open(sealed)
                case _:
                    self._mix(token)
        return rest

    def _mix_ephemeral(self, public: bytes) -> None:
        self._symmetric.mix_hash(public)
        if self.pattern.has_psk:
            self._symmetric.mix_key(public)  # section 9.2: or the psk would meet the same key twice

    def _mix(self, token: str) -> None:
        if token == "psk":
            self._symmetric.mix_psk(self._psk)
            return
        # of two letters the first is the initiator's key, the second the responder's
        mine, theirs = (token[0], token[1]) if self._initiator else (token[1], token[0])
        key = self._ephemeral if mine == "e" else self._static
        if key is None:
            raise UsageError(f"{self.pattern.name} uses an ephemeral key before it is made", remedy="Correct it")
        self._symmetric.mix_key(shared_secret(key, self._remote[theirs]))


def _hkdf(chaining: bytes, material: bytes, outputs: int) -> list[bytes]:
    """HKDF of section 4.3, which is RFC 5869 with an empty info."""
    secret = hmac.digest(chaining, material, "sha256")
    given: list[bytes] = []
    for number in range(1, outputs + 1):
        given.append(hmac.digest(secret, (given[-1] if given else b"") + bytes([number]), "sha256"))
    return given


def _cut(data: bytes, length: int) -> tuple[bytes, bytes]:
    if len(data) < length:
        raise _short(len(data))
    return data[:length], data[length:]


def _short(length: int) -> TamperedError:
    return TamperedError(
        f"a handshake message ends where a key should be, or is no handshake message: {length} bytes",
        remedy="It was changed on its way, or the other side speaks another protocol",
    )
