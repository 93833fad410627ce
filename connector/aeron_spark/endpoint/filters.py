"""Who may come in at all: by network, and by functions of the user's own.

Rules:
* A deny rule that is true refuses, whatever else there is.
* Without allow rules everybody else comes in; with some, whoever one of them is true for.
* A network of one family never matches an address of the other: ``0.0.0.0/0`` is every IPv4 address and no IPv6 one.
* Networks say nothing of IPC: there, only functions count.
* A function that raises, or returns anything but True or False, decides nothing: the client does not come in, and may
  try again. The error is in ``Refusal.cause``.
"""

from __future__ import annotations

import inspect
import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from aeron_spark.endpoint.addresses import IpAddress
from aeron_spark.endpoint.refusal import Refusal, undecided
from aeron_spark.errors import OptionError

NOT_PERMITTED: Final = Refusal("not-permitted", "Connection was not permitted!")
MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")


@dataclass(frozen=True, slots=True)
class Candidate:
    """Who wants to come in: canonical address (None over IPC), tag, and public key, which it has proved to own."""

    address: IpAddress | None
    tag: str
    key: bytes


@dataclass(frozen=True, slots=True)
class Network:
    """A rule of addresses."""

    cidr: ipaddress.IPv4Network | ipaddress.IPv6Network

    @classmethod
    def parse(cls, text: str) -> Network:
        """Parse ``10.0.0.0/8``, ``2001:db8::/32`` or one address. Raises OptionError that says what is wrong."""
        host, slash, prefix = text.partition("/")
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            raise _wrong(
                text, "does not begin with an IP address", "Write such as 10.0.0.0/8 or 2001:db8::/32."
            ) from None
        if "%" in host:
            raise _wrong(text, "has a zone, which is no part of an address", "Leave out what stands after '%'.")
        most = address.max_prefixlen
        if slash and (not re.fullmatch("[0-9]{1,3}", prefix, re.ASCII) or int(prefix) > most):
            raise _wrong(text, f"has the prefix length {prefix!r}", f"For IPv{address.version} it is 0 to {most}.")
        network = ipaddress.ip_network(f"{host}/{prefix or most}", strict=False)
        if network.network_address != address:
            # Meant is the network or the host, and one of them would be a hole.
            remedy = f"Write {network} for the network, {address}/{most} for the host."
            raise _wrong(text, "has bits beyond its prefix length", remedy)
        return cls(_unmapped(network))

    def matches(self, address: IpAddress) -> bool:
        """Whether ``address``, in canonical form, lies in it."""
        return address.version == self.cidr.version and address in self.cidr

    def __str__(self) -> str:
        return str(self.cidr)


Rule = Network | Callable[[Candidate], bool]


class Filters:
    """The rules of one server, in the order in which they are asked."""

    def __init__(self, allow: Sequence[Rule] = (), deny: Sequence[Rule] = ()) -> None:
        for rule in (*allow, *deny):
            if inspect.iscoroutinefunction(rule):
                raise OptionError(f"the filter {_name(rule)} is asynchronous", remedy="Filters are plain functions.")
        self._allow = tuple(allow)
        self._deny = tuple(deny)

    def refusal(self, candidate: Candidate) -> Refusal | None:
        """Say why ``candidate`` may not come in; None where it may."""
        try:
            denied = any(_is_true(rule, candidate) for rule in _applicable(self._deny, candidate))
            allowing = _applicable(self._allow, candidate)
            allowed = not allowing or (not denied and any(_is_true(rule, candidate) for rule in allowing))
        except Exception as error:  # the user's own code: whatever it raises must not let anybody in
            return undecided(error)
        return None if allowed and not denied else NOT_PERMITTED


def _applicable(rules: Sequence[Rule], candidate: Candidate) -> list[Rule]:
    return [rule for rule in rules if candidate.address is not None or not isinstance(rule, Network)]


def _is_true(rule: Rule, candidate: Candidate) -> bool:
    if isinstance(rule, Network):
        return candidate.address is not None and rule.matches(candidate.address)
    answer: object = rule(candidate)
    if answer is True or answer is False:
        return answer
    # a match object or a text would be true, too
    raise OptionError(f"the filter {_name(rule)} returned a {type(answer).__name__}", remedy="Return True or False.")


def _name(rule: object) -> str:
    return repr(getattr(rule, "__qualname__", rule))


def _unmapped(
    network: ipaddress.IPv4Network | ipaddress.IPv6Network,
) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Sources are canonical, so a rule for IPv4 mapped into IPv6 would match nobody."""
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(MAPPED):
        return ipaddress.IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - MAPPED.prefixlen))
    return network


def _wrong(text: str, what: str, remedy: str) -> OptionError:
    return OptionError(f"the rule {text!r} {what}", remedy=remedy)
