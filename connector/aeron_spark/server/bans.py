"""The bans of a server: which keys and addresses it refuses, and until when.

A table is immutable. A change returns another table, so that the threads that look bans up need no lock. ``now`` is in
seconds since 1970: bans outlast the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Final

from aeron_spark.protocol.sources import IpAddress, Network, Refusal

BANNED: Final = "banned"
MAX_TIME_S: Final = 253_402_300_799  # the end of the year 9999: refusals and lists show times as dates

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


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
