"""What a secure endpoint over Aeron must do, row by row, and the tests that show it.

A test shows row N when its name has ``row_NN_`` in it; ``tests`` names those that were there before the rows were.
``python -m tests.behaviours > docs/behaviours.md`` writes the list; ``tests/unit/test_behaviours.py`` keeps it true.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent
_ROW: Final = re.compile(r"(?:^test|_)_?row_(\d{2,3})(?=_)")

_HEAD: Final = """\
# Behaviours of the secure endpoint, and their tests

Written by `python -m tests.behaviours`; a test keeps it true. Two public systems, dorkbox Network and the Echo programs
of the aeron-guide, show what an endpoint over Aeron must do. These are the hundred behaviours to look at, in our own
words, each with the tests that show it here. Rows 1 to 81 are the endpoint's, 82 to 100 those of `aeron-spark echo`.
"""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """``decided`` says what is done here instead, and why; ``tests`` are named besides those that name the row."""

    row: int
    text: str
    decided: str = ""
    tests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A test function, and the file it stands in, below the repository."""

    name: str
    path: str


B = Behaviour
BEHAVIOURS: Final[tuple[Behaviour, ...]] = (
    B(1, "The handshake goes through its four packets over UDP, and ends in a connection."),
    B(2, "A server has two UDP ports and a client one to receive on, however many connect."),
    B(3, "A connect key is never zero and never repeated; an answer to somebody else's is ignored."),
    B(4, "What is no HELLO, and a HELLO without a connect key, is refused, and the server goes on."),
    B(5, "The server's reason for a refusal is in the caller's error."),
    B(6, "A HELLO that comes twice makes one pending handshake."),
    B(7, "DONE without a handshake is refused."),
    B(8, "A client that never opens its duologue holds up nobody else."),
    B(9, "A client that cannot be answered holds up nobody else."),
    B(10, "A handshake that is not finished ends at its deadline, and gives back all it held."),
    B(11, "A client gives up at the time it was given, neither at a shorter nor at a longer one."),
    B(12, "A connect time-out of 0 tries until the client is closed, which ends it at once."),
    B(13, "Ids lie in their range, are never 0 and never in two hands, and come back after a close."),
    B(14, "A server that has run out of ids says so, and loses none by it."),
    B(15, "A publication with another session id than the assigned one is heard by nobody."),
    B(
        16, "Publications on a control port say their control mode, without which newer Aeron refuses them.",
        "the mode is `response`, which reaches one client alone; `dynamic` only with `duologue=mdc`",
    ),
    B(
        17, "A client's channels name its endpoint, the server's control port and the mode, with IPv6 in brackets, and "
        "carry `reliable=false`.",
        "the handshake's subscription says `response`, the duologue's `dynamic`",
    ),
    B(18, "A client behind NAT is answered, also after a minute of silence."),
    B(
        19,
        "A wildcard serves IPv4 and IPv6; a listener of one family does not serve the other, and the error says so.",
        "the error names the address that did not answer: a client cannot know on which others the server listens",
    ),
    B(20, "Ports that are equal, 0 or too large are refused, with exit code 2."),
    B(21, "The server sees the port that a client was told to send from."),
    B(22, "Client and server on one media driver talk through shared memory, and send no packets."),
    B(23, "Without a server on the media driver a client falls back to UDP within seconds, or says why it cannot."),
    B(24, "A second server in the same shared memory is refused."),
    B(
        25, "Networks and limits by address say nothing of clients over shared memory.",
        "functions that filter are asked about them, and totals count them: they look at more than an address",
    ),
    B(26, "Without rules all may come; with some, whoever one of them is true for; /0 is its whole family."),
    B(27, "Prefix lengths beyond 0 to 32 or 0 to 128 are refused; a rule never matches the other family."),
    B(28, "A function that filters sees address and tag."),
    B(29, "A tag of more than 32 characters is refused by the client, and answered by the server."),
    B(30, "A limit of 0 is no limit, for remote clients, too."),
    B(31, "The client beyond the limit is told that the server is full."),
    B(32, "A limit by address stays what it is: refusals neither raise nor use it up, on any path."),
    B(33, "Handshakes under way are limited."),
    B(34, "IPv6 addresses of one /64 share a limit."),
    B(35, "X25519 gives what RFC 7748 says; a key is always 32 bytes."),
    B(36, "One changed bit in an encrypted part of the handshake is an authentication error at once, not a time-out."),
    B(37, "A nonce is never used twice with one key."),
    B(38, "Two handshakes of the same two peers end in different keys."),
    B(39, "What is sent cannot be read on the wire."),
    B(40, "A replayed HELLO allocates nothing, a replayed frame is dropped."),
    B(41, "A server's key is stored when it is first met; another one is refused later, and the store stays as it is."),
    B(42, "Without validation a changed key is let in and flagged, and not stored; a stored key can be removed."),
    B(43, "Two servers on one address with different ports are two entries of the store."),
    B(44, "Stored keys survive a restart, in files nobody else can read; stores in memory have nothing in common."),
    B(45, "A server that knows its clients refuses the key of a stranger, and says so."),
    B(46, "Nobody gets at a session by naming its client's key."),
    B(47, "A hundred pings have a hundred plausible round trips."),
    B(48, "A ping without an answer ends at its deadline, leaves nothing, and holds up no close."),
    B(49, "A message sent with acknowledgement is acknowledged after its listeners had it."),
    B(50, "A close is known to the other side at once; each side hears of the end once."),
    B(51, "A killed peer is noticed after Aeron's time-out and the expiry, and not before."),
    B(52, "An outage shorter than the expiry is no disconnect, and everything arrives."),
    B(53, "A client reconnects five times from its own disconnect listener, and nothing is left over."),
    B(54, "After its server came back a client is connected again by itself."),
    B(55, "A resumed session goes on: connect is not told again, what was there is there."),
    B(56, "A session ends after its time; less than a minute, or than its connection takes to end, is refused."),
    B(57, "What was sent during an outage arrives once and in order."),
    B(
        58, "The end of a connection is not buffered; buffering can be switched off, and is bounded.",
        "with buffering off a message is refused and not dropped: the sender knows",
    ),
    B(59, "Messages of a connection arrive in order."),
    B(60, "A slow receiver costs no messages; waiting for it can be bounded."),
    B(61, "Messages of sizes around the MTU, of 64 KiB and of 32 MiB arrive as they were."),
    B(62, "Files of 0 bytes to more than 2 GiB arrive whole; small ones stay in memory, others are written to disk."),
    B(63, "A stream that ends early, or has a piece outside of what it announced, is refused, and nothing delivered."),
    B(64, "A failed sender or a lost connection leaves nothing of its streams; their number and bytes are limited."),
    B(65, "Streams with equal ids of two connections do not mix."),
    B(66, "Remote objects are found by name or number, made with arguments, called and deleted."),
    B(67, "A remote call ends at its deadline; 0 waits."),
    B(68, "A remote exception comes back with its kind and text, one of a kind nobody registered as a general error."),
    B(
        69, "A call that does not wait returns at once; ways of calling nest.",
        "such a call returns nothing, as there is nothing that its result could be",
    ),
    B(70, "A reference that comes home is the object itself; numbers of two clients do not mix; large ones work."),
    B(71, "A late answer, or one from another connection, is ignored."),
    B(72, "A million one-way calls arrive, and a thousand that are answered."),
    B(73, "Listeners by type, by base type and of a connection are called; an exception goes to on_error alone."),
    B(
        74, "Users of equal settings share a media driver; when the last has gone it stops, and leaves no directory.",
        tests=(
            "test_two_processes_that_come_together_share_one",
            "test_a_node_starts_serves_and_stops_when_unused",
            "test_a_node_in_use_is_not_stopped_unless_it_is_forced",
        ),
    ),
    B(
        75, "The directory of a media driver that was killed is taken over.",
        tests=("test_a_killed_node_is_replaced_at_once_and_its_recordings_are_whole",),
    ),
    B(
        76, "Counters, backlog, errors, losses, heartbeat and version of the media driver can be seen.",
        tests=(
            "test_a_driver_is_known_by_its_files",
            "test_a_driver_with_a_backlog_and_an_error_is_told_whole",
            "test_backlog_is_what_a_subscriber_has_not_taken",
            "test_losses_are_told_by_stream",
        ),
    ),
    B(77, "A dead peer does not disturb the media driver's other users."),
    B(78, "Thirty clients come at once and leave, and nothing is left over."),
    B(79, "Closing while connecting, and before listening, ends soon."),
    B(80, "What a stranger's HELLO costs in shared memory is bounded and given back."),
    B(81, "An endpoint that has nothing to do takes next to no processor time."),
    B(82, "Echo 1.0: HELLO is not echoed, everything after it is."),
    B(83, "Echo 1.0: what is no HELLO changes nothing, bad ports are refused, and the server goes on."),
    B(84, "Echo 1.0: text beyond ASCII comes back as it was."),
    B(85, "Echo 2.0: a client is introduced, and echoed."),
    B(86, "Echo 2.0: the answer has the grammar of the reference, and a fresh key each time."),
    B(87, "Echo 2.0: every malformed HELLO is answered."),
    B(88, "Echo 2.0: a full server says so, then the limit by address does."),
    B(89, "Echo 2.0: a duologue nobody comes to is given back."),
    B(90, "Echo 2.0: a second HELLO does not orphan the first duologue."),
    B(91, "Echo 2.0: only the address that asked for a duologue may use it."),
    B(92, "Echo 2.0: a wrong session id cannot join."),
    B(93, "Echo 2.0: an unknown verb ends the duologue with an error, and frees it."),
    B(94, "Echo 2.0: an error in the duologue ends the client."),
    B(95, "Echo 2.0: long texts are echoed or refused, never met with silence."),
    B(96, "Echo 2.0: what is said to others is ignored; each step has ten seconds, and is named."),
    B(97, "Echo 2.0: two clients never have one session id."),
    B(98, "Echo 2.0: a client that does not read delays nobody."),
    B(99, "Echo 2.0: a server on IPv6 works."),
    B(100, "Echo: a signal ends it soon, and nothing is left over."),
)  # fmt: skip


def all_tests(folder: Path = TESTS) -> Iterator[Found]:
    """Yield every test function below ``folder``, those of classes among them."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield Found(node.name, path.relative_to(folder.parent).as_posix())


def rows_in(name: str) -> tuple[int, ...]:
    """Return the rows that a test's name says it shows."""
    return tuple(int(row) for row in _ROW.findall(name))


def shown_by(tests: Iterator[Found]) -> Mapping[int, list[Found]]:
    """Return the tests of each row, in the order of their files."""
    found: dict[int, list[Found]] = {behaviour.row: [] for behaviour in BEHAVIOURS}
    named = {name: behaviour.row for behaviour in BEHAVIOURS for name in behaviour.tests}
    for test in tests:
        for row in dict.fromkeys((*rows_in(test.name), *([named[test.name]] if test.name in named else ()))):
            found.setdefault(row, []).append(test)
    return found


def markdown(tests: Iterator[Found]) -> str:
    """Return the text of ``docs/behaviours.md``."""
    shown = shown_by(tests)
    lines = [_HEAD, "| row | behaviour | shown by |", "|---|---|---|"]
    for one in BEHAVIOURS:
        text = f"{one.text} *Decided otherwise: {one.decided}.*" if one.decided else one.text
        where = "<br>".join(f"`{test.path.removeprefix('tests/')}` {test.name}" for test in shown[one.row])
        lines.append(f"| {one.row} | {text} | {where or 'nothing yet'} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown(all_tests()))
