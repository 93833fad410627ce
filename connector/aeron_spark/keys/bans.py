"""The bans of a server: which keys and addresses it refuses, until when, and the file that keeps them over restarts.

The file ``bans.json`` is in the server's store:

    {"version": 1, "bans": [{"key": "aeron-spark:…", "name": "desk-7", "since": 1.7e9, "until": null, "reason": ""},
                            {"address": "192.0.2.0/24", "since": 1.7e9, "until": 1.8e9, "reason": "flood"}]}

Times are in seconds since 1970, because bans outlast the process. A ``BanTable`` is immutable and has no clock. A
change returns another table, so that the threads that look bans up need no lock.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from aeron_spark.errors import AeronSparkError, DataFormatError, RefusedError, SetupError
from aeron_spark.files import replace_file, write_failed
from aeron_spark.protocol.keypair import parse_public, public_text
from aeron_spark.protocol.sources import IpAddress, Network, Refusal
from aeron_spark.texts import parse_json

BANNED: Final = "banned"
MAX_TIME_S: Final = 253_402_300_799  # the end of the year 9999: refusals and lists show times as dates
FILE_NAME: Final = "bans.json"
VERSION: Final = 1
MAX_BANS: Final = 10_000
MAX_FILE_BYTES: Final = 16 << 20

Subject = bytes | Network
"""The public key, or the network, that a ban is for."""

_Prefix = tuple[int, int]  # IP version, and the number of bits that addresses of a network have in common


@dataclass(frozen=True, slots=True)
class Ban:
    """A banned key or network. ``until`` None: until an operator removes the ban.

    ``name`` is that of a key at the time of the ban. The ``reason`` is for operators; clients do not receive it.
    """

    subject: Subject
    since: float
    until: float | None = None
    reason: str = ""
    name: str = ""

    def applies(self, now: float) -> bool:
        """Return whether the ban has not expired."""
        return self.until is None or now < self.until

    def refusal(self) -> Refusal:
        """Return the response to a client whose key or address is banned."""
        what = "key" if isinstance(self.subject, bytes) else "address"
        return Refusal(BANNED, f"Your {what} is banned{'' if self.until is None else f' until {_time(self.until)}'}")


class BanTable:
    """An immutable set of bans, at most one for a key or network."""

    def __init__(self, bans: Iterable[Ban] = ()) -> None:
        self._bans: Final[Mapping[Subject, Ban]] = MappingProxyType({ban.subject: ban for ban in bans})
        networks: dict[_Prefix, dict[int, Ban]] = {}
        for ban in self._bans.values():
            if isinstance(ban.subject, Network):
                cidr = ban.subject.cidr
                prefix = (cidr.version, cidr.prefixlen)
                networks.setdefault(prefix, {})[int(cidr.network_address) >> cidr.max_prefixlen - cidr.prefixlen] = ban
        # the look-up for an address takes one step for each prefix length, however many networks are banned
        self._networks: Final = networks

    def __len__(self) -> int:
        return len(self._bans)

    def bans(self, now: float) -> tuple[Ban, ...]:
        """Return the bans that have not expired, in the order in which they were added."""
        return tuple(ban for ban in self._bans.values() if ban.applies(now))

    def get(self, subject: Subject, now: float) -> Ban | None:
        """Return the ban of exactly this key or network; None if there is none, or if it has expired."""
        ban = self._bans.get(subject)
        return ban if ban is not None and ban.applies(now) else None

    def key_refusal(self, key: bytes, now: float) -> Refusal | None:
        """Return the refusal of a client's public key; None if it is not banned."""
        ban = self.get(key, now)
        return None if ban is None else ban.refusal()

    def address_refusal(self, address: IpAddress, now: float) -> Refusal | None:
        """Return the refusal of a canonical address; None if no network that has it is banned."""
        number, bits = int(address), address.max_prefixlen
        for (version, length), bans in self._networks.items():
            if version == address.version:
                ban = bans.get(number >> bits - length)
                if ban is not None and ban.applies(now):
                    return ban.refusal()
        return None

    def with_bans(self, bans: Iterable[Ban], now: float) -> BanTable:
        """Return a table with more bans, which replace those of the same keys and networks; without expired ones."""
        added = {ban.subject: ban for ban in bans}
        kept = [ban for ban in self.bans(now) if ban.subject not in added]
        return BanTable([*kept, *added.values()])

    def without(self, subject: Subject, now: float) -> BanTable:
        """Return a table without the ban of a key or network, and without expired bans."""
        return BanTable(ban for ban in self.bans(now) if ban.subject != subject)


class StoredBans:
    """The bans of one server. Thread-safe. ``clock`` returns seconds since 1970.

    Before ``open``, and if the server has no store, bans last until the process ends.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._table = BanTable()
        self._path: Path | None = None

    def open(self, folder: Path | None) -> None:
        """Read the bans in a store's folder, and keep later changes there; None: the server has no store.

        Raises DataFormatError for a damaged file, SetupError for one that cannot be read.
        """
        if folder is None:
            return
        path = folder / FILE_NAME
        with self._lock:
            self._table, self._path = self._table.with_bans(_read(path), self._clock()), path

    def all(self) -> tuple[Ban, ...]:
        """Return the bans that have not expired, in the order in which they were added."""
        return self._table.bans(self._clock())

    def key_refusal(self, key: bytes) -> Refusal | None:
        """Return the refusal of a client's public key; None if it is not banned."""
        return self._table.key_refusal(key, self._clock())

    def address_refusal(self, address: IpAddress) -> Refusal | None:
        """Return the refusal of a canonical address; None if it is not banned."""
        return self._table.address_refusal(address, self._clock())

    def add(self, subjects: Mapping[Subject, str], seconds: float | None = None, reason: str = "") -> tuple[Ban, ...]:
        """Ban keys and networks, and return the bans, which replace earlier ones. None: until they are removed.

        ``subjects`` has the names of the keys; "" for a network. Raises RefusedError beyond MAX_BANS, and
        TransportError if the file cannot be written; then nothing changes.
        """
        now = self._clock()
        until = None if seconds is None else now + seconds
        bans = tuple(Ban(subject, now, until, reason, name) for subject, name in subjects.items())
        with self._lock:
            table = self._table.with_bans(bans, now)
            if len(table) > MAX_BANS:
                raise RefusedError(
                    f"the server has {MAX_BANS} bans, which is the limit",
                    remedy="Remove some, or ban one network in place of its addresses.",
                    reason="limit",
                )
            self._replace(table)
        return bans

    def remove(self, subject: Subject) -> Ban | None:
        """Remove the ban of exactly this key or network, and return it; None if there is none."""
        now = self._clock()
        with self._lock:
            ban = self._table.get(subject, now)
            if ban is not None:
                self._replace(self._table.without(subject, now))
        return ban

    def _replace(self, table: BanTable) -> None:
        if self._path is not None:
            try:
                replace_file(self._path, _encode(table.bans(self._clock())))
            except OSError as error:
                raise write_failed(self._path, error) from error
        self._table = table


def _read(path: Path) -> list[Ban]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}", remedy="Check its owner and its mode.") from None
    try:
        return _decode(content)
    except (ValueError, TypeError, RecursionError, AeronSparkError) as error:
        what = error.what if isinstance(error, AeronSparkError) else str(error)
        raise DataFormatError(
            f"the bans in {path} are damaged: {what}",
            remedy="Restore the file from a backup. Without the file, no key and no address is banned.",
        ) from None


def _encode(bans: Iterable[Ban]) -> bytes:
    entries = []
    for ban in bans:
        subject = ban.subject
        named = {"address": str(subject)} if isinstance(subject, Network) else {"key": public_text(subject)}
        entries.append({**named, "name": ban.name, "since": ban.since, "until": ban.until, "reason": ban.reason})
    return json.dumps({"version": VERSION, "bans": entries}, indent=1).encode() + b"\n"


def _decode(content: bytes) -> list[Ban]:
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"the file has more than {MAX_FILE_BYTES} bytes")
    document = parse_json(content.decode())
    if not isinstance(document, dict) or not isinstance(document.get("bans"), list):
        raise ValueError("expected an object with the list 'bans'")
    if document.get("version") != VERSION:
        raise ValueError(f"the format has version {document.get('version')!r}, expected {VERSION}")
    return [_ban(entry) for entry in document["bans"]]


def _ban(entry: Any) -> Ban:
    if not isinstance(entry, dict) or ("key" in entry) == ("address" in entry):
        raise ValueError(f"{str(entry)[:100]} is not a ban of a key or an address")
    since, until = entry.get("since"), entry.get("until")
    texts = [entry.get(name, "") for name in ("key", "address", "reason", "name")]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"a text of {str(entry)[:100]} is not a string")
    for seconds in (since, until):
        if not (seconds is None or (type(seconds) in (int, float) and 0 <= seconds <= MAX_TIME_S)):
            raise ValueError(f"{str(seconds)[:20]!r} is not a time")
    if since is None:
        raise ValueError(f"{str(entry)[:100]} has no time 'since'")
    key, address, reason, name = texts
    return Ban(parse_public(key) if key else Network.parse(address), since, until, reason, name)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
