"""The clients file of a server: its authorised keys, and what each may do. The file fails closed.

    role prices streams=prices.*:read
    role=prices name=desk-7 tag=desk-* aeron-spark:Kx9…  Alice's desk
    streams=orders.*:read,write writers=edge-* connections=4 name=edge expires=2027-06-30 aeron-spark:Zp0…
    all name=ops aeron-spark:Cq3…

A line is empty, a comment after ``#``, ``role NAME OPTION...``, or ``[OPTION...] KEY [COMMENT]``. Options have no
spaces; grants that are repeated add up:

    all                          every action
    role=NAMES                   the options of these roles
    streams=PATTERNS:ACTIONS     actions on streams: read, write, create, manage, purge, or all
    writers=PATTERNS             the only writer ids that the key may use
    calls=PATTERNS               methods of the program's objects, as object.method
    messages=send,receive        messages outside streams
    files=send                   named files
    tag=PATTERNS                 condition: the client's tag
    from=NETWORKS                condition: the client's address
    expires=TIME                 condition: before this day (UTC) or time (RFC 3339, with its zone)
    name=NAME                    the key's name in logs and lists
    connections=N, bytes-in=SIZE, bytes-out=SIZE, messages-in=N, stage-bytes=SIZE, partitions=N     limits

A client must meet every condition. A limit on the line of a key replaces that of its roles; of several roles, the
largest applies.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from aeron_spark.errors import AeronSparkError, DataFormatError, SetupError
from aeron_spark.keys import key_files
from aeron_spark.protocol.grants import MESSAGE_DIRECTIONS, STREAM_ACTIONS, Grant, KeyLimits, StreamGrant, covers
from aeron_spark.protocol.keypair import PREFIX, parse_public
from aeron_spark.protocol.sources import Network
from aeron_spark.texts import INT64_MAX, format_size, nearest, parse_size, parse_whole

SIZES = frozenset({"bytes_in", "bytes_out", "stage_bytes"})


def allowed_text(grant: Grant) -> str:
    """Return what the grant allows; "connect and ping" if that is all."""
    if grant.everything:
        return "all"
    words = [
        f"streams={','.join(one.patterns)}:" + (",".join(action for action in STREAM_ACTIONS if action in one.actions))
        for one in grant.streams
    ]
    if grant.writers is not None:
        words.append(f"writers={','.join(grant.writers)}")
    if grant.calls:
        words.append(f"calls={','.join(grant.calls)}")
    if grant.messages:
        words.append(f"messages={','.join(one for one in MESSAGE_DIRECTIONS if one in grant.messages)}")
    if grant.sends_files:
        words.append("files=send")
    return " ".join(words) or "connect and ping"


def conditions_text(grant: Grant) -> str:
    words = [f"tag={','.join(patterns)}" for patterns in grant.tags]
    words += [f"from={','.join(map(str, networks))}" for networks in grant.networks]
    if grant.expires is not None:
        words.append(f"expires={time_text(grant.expires)}")
    return " ".join(words)


def limits_text(grant: Grant) -> str:
    found = ((one.name, getattr(grant.limits, one.name)) for one in fields(KeyLimits))
    return " ".join(
        f"{name.replace('_', '-')}={format_size(value) if name in SIZES else value}"
        for name, value in found
        if value is not None
    )


def time_text(seconds: float) -> str:
    """Return a time in seconds since 1970 as text in UTC: a day at midnight, else a time."""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.strftime("%Y-%m-%d" if seconds % 86_400 == 0 else "%Y-%m-%dT%H:%M:%SZ")


ROLE: Final = "role"  # the first word of a line that defines a role
LIMITS: Final[Mapping[str, Callable[[str, int, int], int]]] = {
    "connections": parse_whole, "bytes-in": parse_size, "bytes-out": parse_size, "messages-in": parse_whole,
    "stage-bytes": parse_size, "partitions": parse_whole,
}  # fmt: skip
OPTIONS: Final = (
    "role", "streams", "writers", "calls", "messages", "files", "tag", "from", "expires", "name", *LIMITS
)  # fmt: skip
ALL: Final = "all"
MAX_NAME: Final = 64
MAX_LINE: Final = 16 << 10  # characters; each option of a line copies those before it
MAX_DEPTH: Final = 16  # roles of roles
MAX_WRONG: Final = 20  # lines; the lines after them are not read
MAX_SHOWN: Final = 500  # names in an error

_NAME: Final = re.compile(rf"[A-Za-z0-9._@-]{{1,{MAX_NAME}}}", re.ASCII)
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME: Final = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:\d{2})(?:\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_T = TypeVar("_T", bound=str)


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of the file. ``parts`` has the grants by role, and under "" the grants in the key's line."""

    key: bytes
    line: int
    grant: Grant
    parts: Mapping[str, Grant]


@dataclass(frozen=True, slots=True)
class WrongLine:
    """A line of the file that is wrong."""

    number: int
    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ClientsFile:
    """The content of a clients file, with all its errors. A server does not use a file that has one."""

    entries: Sequence[Entry]
    wrong: Sequence[WrongLine] = ()

    def grants(self, where: str) -> Mapping[bytes, Grant]:
        """Return the grants by public key. Raises DataFormatError, which names ``where``, if a line is wrong."""
        if self.wrong:
            first, others = self.wrong[0], len(self.wrong) - 1
            more = f" ({others} more {'line is' if others == 1 else 'lines are'} wrong)" if others else ""
            raise DataFormatError(f"line {first.number} of {where} is wrong: {first.what}{more}", remedy=first.remedy)
        return {entry.key: entry.grant for entry in self.entries}


def read_clients(path: Path) -> ClientsFile:
    """Read and parse the file. Raises SetupError without the file, DataFormatError if it is not text in UTF-8."""
    content = key_files.read_public(path)
    if content is None:
        raise SetupError(f"the clients file {path} does not exist", remedy="Create it with one public key per line.")
    try:
        return parse_clients(content.decode())
    except UnicodeDecodeError:
        raise DataFormatError(f"the clients file {path} is not UTF-8", remedy="Write the file in UTF-8.") from None


def parse_clients(text: str) -> ClientsFile:
    parser = _Parser()
    for number, line in enumerate(text.split("\n"), 1):  # some editors do not show other line separators
        if line.strip() and not line.lstrip().startswith("#"):
            parser.add(number, line.strip())
        if parser.has_enough_errors:
            break
    return parser.parsed()


def default_name(key: bytes) -> str:
    """Return the name of a key whose line has none: ``key-`` and 16 hex digits of its SHA-256.

    With 8 digits, anybody could find a key with the name of another one in some hours, and an operator could ban the
    wrong one.
    """
    return f"key-{hashlib.sha256(key).hexdigest()[:16]}"


def key_name(key: bytes, grant: Grant | None) -> str:
    """Return the name of a client's key in logs and lists: the one in the clients file, or the default one."""
    return (grant.name if grant is not None else "") or default_name(key)


class _Parser:
    """Collects the roles and keys of all lines; then resolves the roles, which may be defined after their use."""

    def __init__(self) -> None:
        self._roles: dict[str, _Line] = {}
        self._keys: dict[bytes, _Line] = {}
        self._wrong: dict[int, WrongLine] = {}  # by number
        self._resolved: dict[str, dict[str, Grant]] = {}  # by role: its grant, and those of its roles
        self._depths: dict[str, int] = {}  # by role

    @property
    def has_enough_errors(self) -> bool:
        return len(self._wrong) >= MAX_WRONG

    def add(self, number: int, line: str) -> None:
        with self._errors_of(number):
            if len(line) > MAX_LINE:
                raise DataFormatError(
                    f"it has {len(line)} characters, the limit is {MAX_LINE}", remedy="Divide it among several roles."
                )
            first, rest = _split_word(line)
            if first == ROLE:
                self._add_role(number, rest)
            else:
                self._add_key(number, line)

    def parsed(self) -> ClientsFile:
        names = dict[str, int]()
        entries = []
        for key, line in self._keys.items():
            if self.has_enough_errors:
                break
            with self._errors_of(line.number):
                entries.append(self._entry(key, line))
                name = entries[-1].grant.name
                if names.setdefault(name, line.number) != line.number:
                    raise DataFormatError(
                        f"the name {name!r} is also that of the key on line {names[name]}",
                        remedy="Give each key a different name.",
                    )
        for name, role in self._roles.items():
            if self.has_enough_errors:
                break
            with self._errors_of(role.number):  # also of roles that no key has
                self._resolve([name], ())
        return ClientsFile(entries, sorted(self._wrong.values(), key=lambda one: one.number))

    def _add_role(self, number: int, text: str) -> None:
        name, rest = _split_word(text)
        _check_name(name, "role")
        if name in self._roles:
            raise DataFormatError(
                f"the role {name!r} is already on line {self._roles[name].number}", remedy="Define each role once."
            )
        line = self._roles[name] = _Line(number)
        while rest:
            word, rest = _split_word(rest)
            if word.startswith(PREFIX):
                raise DataFormatError("a role has no key", remedy="Write 'role=NAME' on the line of the key.")
            line.add(word)
        if line.grant.name:
            raise DataFormatError("a role cannot give a name to keys", remedy="Write 'name=' on the line of the key.")

    def _add_key(self, number: int, text: str) -> None:
        line, rest = _Line(number), text
        while True:
            word, rest = _split_word(rest)
            if word.startswith(PREFIX):
                break
            line.add(word)
        key = parse_public(word)
        if key in self._keys:
            raise DataFormatError(
                f"its key is already on line {self._keys[key].number}", remedy="Put all options of a key on one line."
            )
        line.grant = replace(line.grant, name=line.grant.name or default_name(key), comment=rest)
        self._keys[key] = line

    def _entry(self, key: bytes, line: _Line) -> Entry:
        roles = self._resolve(line.roles, ())
        return Entry(key, line.number, _combined(line.grant, list(roles.values())), {"": line.grant, **roles})

    def _resolve(self, names: Sequence[str], inside: tuple[str, ...]) -> dict[str, Grant]:
        """Return the grants of roles, and of the roles that these have."""
        found = dict[str, Grant]()
        for name in names:
            role = self._roles.get(name)
            if role is None:
                remedy = _nearest(name, self._roles) if self._roles else f"Add a line that begins with 'role {name} '."
                raise DataFormatError(f"the role {name!r} is not defined", remedy=remedy)
            if name in inside:
                circle = " -> ".join((*inside[inside.index(name) :], name))
                raise DataFormatError(f"the roles {circle} form a circle", remedy="Remove one 'role='.")
            if name not in self._resolved:  # each role once, whatever number of roles has it
                if len(inside) >= MAX_DEPTH:
                    raise _too_deep(inside[0])
                grants = {name: role.grant, **self._resolve(role.roles, (*inside, name))}
                depth = self._depths[name] = 1 + max((self._depths[one] for one in role.roles), default=0)
                if depth > MAX_DEPTH:
                    raise _too_deep(name)
                self._resolved[name] = grants
            found |= self._resolved[name]
        return found

    @contextmanager
    def _errors_of(self, number: int) -> Iterator[None]:
        try:
            yield
        except AeronSparkError as error:
            self._wrong.setdefault(number, WrongLine(number, error.what, error.remedy))  # it can cause others


class _Line:
    """The options of one line. ``grant`` has those that are not roles."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.grant = Grant()
        self.roles: list[str] = []

    def add(self, word: str) -> None:
        """Add an option. Raises AeronSparkError if it is wrong."""
        name, equals, value = word.partition("=")
        grant = self.grant
        if word == ALL:
            self.grant = replace(grant, everything=True)
        elif not equals or name not in OPTIONS:
            raise _unknown(word, name)
        elif name == "role":
            self.roles += _patterns(value)
        elif name == "streams":
            self.grant = replace(grant, streams=(*grant.streams, _stream_grant(value)))
        elif name == "writers":
            self.grant = replace(grant, writers=(*(grant.writers or ()), *_patterns(value)))
        elif name == "calls":
            self.grant = replace(grant, calls=(*grant.calls, *_patterns(value)))
        elif name == "messages":
            self.grant = replace(grant, messages=grant.messages | _choices("direction", value, MESSAGE_DIRECTIONS))
        elif name == "files":
            self.grant = replace(grant, sends_files=bool(_choices("action", value, ("send",))))
        elif name == "tag":
            self.grant = replace(grant, tags=(*grant.tags, _patterns(value)))
        elif name == "from":
            networks = tuple(Network.parse(part) for part in _patterns(value))
            self.grant = replace(grant, networks=(*grant.networks, networks))
        elif name == "expires":
            self.grant = replace(grant, expires=_earliest(grant.expires, _time(value)))
        elif name == "name":
            self._set_name(value)
        else:
            self._set_limit(name, value)

    def _set_name(self, value: str) -> None:
        _check_name(value, "key")
        if self.grant.name:
            raise DataFormatError("the option 'name' is given twice", remedy="Give it once.")
        self.grant = replace(self.grant, name=value)

    def _set_limit(self, name: str, value: str) -> None:
        field_name = name.replace("-", "_")
        if getattr(self.grant.limits, field_name) is not None:
            raise DataFormatError(f"the option {name!r} is given twice", remedy="Give it once.")
        try:
            number = LIMITS[name](value, 1, INT64_MAX)
        except ValueError as error:
            raise DataFormatError(f"{name}={value!r} is not {error}", remedy="Correct the value.") from None
        self.grant = replace(self.grant, limits=replace(self.grant.limits, **{field_name: number}))


def _combined(own: Grant, roles: Sequence[Grant]) -> Grant:
    """Return the grant of a key: grants add up, all conditions hold, and limits are those of its line first."""
    parts = [own, *roles]
    writers = [part.writers for part in parts if part.writers is not None]
    return replace(
        own,
        everything=any(part.everything for part in parts),
        streams=tuple(one for part in parts for one in part.streams),
        writers=tuple(one for patterns in writers for one in patterns) if writers else None,
        calls=tuple(one for part in parts for one in part.calls),
        messages=frozenset().union(*(part.messages for part in parts)),
        sends_files=any(part.sends_files for part in parts),
        tags=tuple(one for part in parts for one in part.tags),
        networks=tuple(one for part in parts for one in part.networks),
        expires=reduce(_earliest, (part.expires for part in parts)),
        limits=_limits(own.limits, [role.limits for role in roles]),
    )


def _limits(own: KeyLimits, roles: Sequence[KeyLimits]) -> KeyLimits:
    chosen = dict[str, int | None]()
    for one in fields(KeyLimits):
        of_roles = [value for role in roles if (value := getattr(role, one.name)) is not None]
        value = getattr(own, one.name)
        chosen[one.name] = max(of_roles, default=None) if value is None else value
    return KeyLimits(**chosen)


def _earliest(one: float | None, other: float | None) -> float | None:
    return min((time for time in (one, other) if time is not None), default=None)


def _stream_grant(value: str) -> StreamGrant:
    names, colon, actions = value.rpartition(":")
    if not colon:
        raise DataFormatError(
            f"streams={value!r} has no actions", remedy="Write streams=PATTERNS:ACTIONS, such as streams=prices.*:read."
        )
    chosen = frozenset(STREAM_ACTIONS) if actions == ALL else _choices("action", actions, STREAM_ACTIONS)
    return StreamGrant(_patterns(names), chosen)


def _choices(noun: str, value: str, choices: Sequence[_T]) -> frozenset[_T]:
    by_text = {str(choice): choice for choice in choices}
    words = value.split(",")
    for word in words:
        if word not in by_text:
            raise DataFormatError(f"unknown {noun} {word!r}", remedy=_nearest(word, by_text))
    return frozenset(by_text[word] for word in words)


def _patterns(value: str) -> tuple[str, ...]:
    found = tuple(value.split(","))
    if "" in found:
        raise DataFormatError(
            f"the list {value!r} has an empty name", remedy="Write one name, or several with one comma between two."
        )
    return found


def _time(value: str) -> float:
    """Return a time in seconds since 1970. A day begins at midnight in UTC."""
    try:
        if _DAY.fullmatch(value):
            return datetime.fromisoformat(value).replace(tzinfo=timezone.utc).timestamp()
        match = _TIME.fullmatch(value)
        if match is None:
            raise ValueError
        day, clock, zone = match.groups()
        return datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}").timestamp()
    except ValueError:
        raise DataFormatError(
            f"expires={value!r} is not a day or a time with its zone",
            remedy="Write for example expires=2027-06-30 or expires=2027-06-30T18:00:00Z.",
        ) from None


def _check_name(name: str, of: str) -> None:
    if not _NAME.fullmatch(name):
        raise DataFormatError(
            f"{name!r} is not the name of a {of}",
            remedy=f"Use 1 to {MAX_NAME} letters, digits and the characters . _ @ -",
        )


def _unknown(word: str, name: str) -> DataFormatError:
    if not word:
        return DataFormatError("it has no key", remedy=f"A key begins with {PREFIX!r}.")
    return DataFormatError(
        f"{word[:60]!r} is neither an option nor a key",
        remedy=_nearest(name, (ALL, *OPTIONS), f"Options are {', '.join((ALL, *OPTIONS))}; a key begins with {PREFIX}"),
    )


def _too_deep(role: str) -> DataFormatError:
    return DataFormatError(
        f"the role {role!r} has roles of roles more than {MAX_DEPTH} deep", remedy="Write fewer 'role=' in roles."
    )


def _nearest(word: str, choices: Iterable[str], otherwise: str = "") -> str:
    near = nearest(word, choices)
    return f"Did you mean {near!r}?" if near else otherwise or f"Choose from {', '.join(islice(choices, MAX_SHOWN))}."


def _split_word(text: str) -> tuple[str, str]:
    """Return the first word of a text, and the rest; "" and "" for no word."""
    words = text.split(None, 1)
    return (words[0] if words else "", words[1] if len(words) > 1 else "")


@dataclass(frozen=True, slots=True)
class ClientsChange:
    """The keys, by their names, that a new version of the file added, removed and changed.

    ``narrowed`` are those of ``changed`` that lost a grant or got a further condition. ``keys`` is the number of keys
    in the new version.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    narrowed: tuple[str, ...] = ()
    keys: int = 0


class ClientTable:
    """The grants in a clients file, in memory. ``grant`` is thread-safe; one thread at a time calls ``refresh``.

    Raises SetupError or DataFormatError if the file is missing or wrong. A later version that is missing or wrong
    changes nothing: the last good version stays. ``wall`` returns seconds since 1970.
    """

    def __init__(self, path: Path, wall: Callable[[], float] = time.time) -> None:
        self.path = path
        self._wall = wall
        self._signature = _signature(path)  # before reading: a change meanwhile is found later
        self._grants = read_clients(path).grants(str(path))
        self.read_at = wall()
        """When the version in use was read, in seconds since 1970."""

    def __len__(self) -> int:
        return len(self._grants)

    def grant(self, client: bytes) -> Grant | None:
        """Return the grant of a public key; None if it is not authorised."""
        return self._grants.get(client)

    def grants(self) -> Mapping[bytes, Grant]:
        """Return the grants of all keys."""
        return self._grants

    def refresh(self, *, force: bool = False) -> ClientsChange | None:
        """Read the file again if it has changed, or with ``force``; return the change, or None for an unchanged file.

        Raises SetupError or DataFormatError, once per version of the file, if the file is missing or wrong.
        """
        signature = _signature(self.path)
        if signature == self._signature and not force:
            return None
        self._signature = signature
        before, after = self._grants, read_clients(self.path).grants(str(self.path))
        self._grants, self.read_at = after, self._wall()
        return _change(before, after)


def _change(before: Mapping[bytes, Grant], after: Mapping[bytes, Grant]) -> ClientsChange:
    changed = {key: grant for key, grant in after.items() if before.get(key, grant) != grant}
    return ClientsChange(
        added=tuple(grant.name for key, grant in after.items() if key not in before),
        removed=tuple(grant.name for key, grant in before.items() if key not in after),
        changed=tuple(grant.name for grant in changed.values()),
        narrowed=tuple(grant.name for key, grant in changed.items() if not covers(grant, before[key])),
        keys=len(after),
    )


def _signature(path: Path) -> tuple[int, ...] | None:
    """Return what differs between two versions of a file; None without the file.

    The path may be a symbolic link that is replaced, as Kubernetes does.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
