"""The behaviours that a secure endpoint over Aeron needs, and the tests that show them.

A test shows row N if its name contains ``row_NN_``. ``tests`` of a behaviour lists further tests.
``python -m tests.behaviours > docs/behaviours.md`` writes the page; ``tests/unit/test_behaviours.py`` compares it.
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

This page answers: which tests show each behaviour of the secure endpoint?

`python -m tests.behaviours` writes this page; a test compares it. Two public systems, dorkbox Network and the Echo
programs of the aeron-guide, show which behaviours an endpoint over Aeron needs. The table has a hundred of them, in
our own words, each with its tests. Rows 1 to 81 are the endpoint's, rows 82 to 100 those of `aeron-spark echo`.
"""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A behaviour. ``difference``: how and why this project differs; ``tests``: tests without a row in their names."""

    row: int
    text: str
    difference: str = ""
    tests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundTest:
    """A test function, and the path of its file relative to the repository."""

    name: str
    path: str


B = Behaviour
BEHAVIOURS: Final[tuple[Behaviour, ...]] = (
    B(1, "A handshake exchanges its four packets over UDP and ends in a connection."),
    B(2, "A server has two UDP ports and a client one receiving port, for any number of clients."),
    B(3, "A connect key is never zero and never repeated; a response for another connect key is ignored."),
    B(4, "A packet that is not a HELLO, or a HELLO without a connect key, is refused, and the server continues."),
    B(5, "The caller's error has the server's reason for a refusal."),
    B(6, "A HELLO that arrives twice makes one pending handshake."),
    B(7, "DONE without a handshake is refused."),
    B(8, "A client that never opens its link delays no other client."),
    B(9, "A client that the server cannot send to delays no other client."),
    B(10, "An unfinished handshake ends at its deadline and releases everything it held."),
    B(11, "A client gives up at its connect timeout, neither earlier nor later."),
    B(12, "With a connect timeout of 0 a client tries until it is closed, and closing ends the attempt at once."),
    B(13, "Ids are in their range, never 0 and never used twice at a time, and are free again after a close."),
    B(14, "A server without free ids reports this, and loses no id by it."),
    B(15, "No endpoint receives a publication with another session id than the assigned one."),
    B(
        16, "Publications on a control port name their control mode; newer Aeron refuses them without it.",
        "the mode is `response`, which reaches one client alone; `dynamic` only with `replyChannel=mdc`",
    ),
    B(
        17, "A client's channels name its endpoint, the server's control port and the mode, with IPv6 in brackets, and "
        "carry `reliable=false`.",
        "the handshake's subscription has `response`, the link's `dynamic`",
    ),
    B(18, "A client behind NAT gets responses, also after a minute of silence."),
    B(
        19,
        "A wildcard serves IPv4 and IPv6; a listener of one family does not serve the other, and the error says so.",
        "the error names the address that did not respond: a client cannot know the other addresses of the server",
    ),
    B(20, "Ports that are equal, 0 or too large are refused, with exit code 2."),
    B(21, "The server sees the port from which a client was configured to send."),
    B(22, "Client and server on one media driver use shared memory and send no packets."),
    B(23, "Without a server on the media driver a client uses UDP within seconds, or its error says why it cannot."),
    B(24, "A second server in the same shared memory is refused."),
    B(
        25, "Networks and limits by address do not apply to clients over shared memory.",
        "filter functions and totals do apply: they use more than an address",
    ),
    B(26, "Without allow rules all clients are accepted, with some those that match one; /0 is a whole family."),
    B(27, "Prefix lengths beyond 0 to 32 or 0 to 128 are refused; a rule never matches the other family."),
    B(28, "A filter function gets address and tag."),
    B(29, "The client refuses a tag of more than 32 characters, and the server answers it with an error."),
    B(30, "A limit of 0 means no limit, also for remote clients."),
    B(31, "The client beyond the limit gets an error that the server is full."),
    B(32, "A limit by address does not change: refusals neither raise it nor use it up."),
    B(33, "The number of pending handshakes is limited."),
    B(34, "IPv6 addresses of one /64 share a limit."),
    B(35, "X25519 has the results of RFC 7748; a key always has 32 bytes."),
    B(36, "One altered bit in an encrypted part of the handshake is an authentication error at once, not a timeout."),
    B(37, "A nonce is never used twice with one key."),
    B(38, "Two handshakes of the same two peers end in different keys."),
    B(39, "A captured packet does not show the content of a message."),
    B(40, "A replayed HELLO allocates nothing, a replayed frame is dropped."),
    B(41, "A server's key is stored at the first contact; later another key is refused and the store is unchanged."),
    B(42, "Without validation a changed key is accepted and flagged, and not stored; a stored key can be removed."),
    B(43, "Two servers on one address with different ports are two entries of the store."),
    B(44, "Stored keys survive a restart, in files that only their user can read; stores in memory share nothing."),
    B(45, "A server with authorised keys refuses every other key and says so."),
    B(46, "A client that claims another client's key does not get its session."),
    B(47, "A hundred pings have a hundred plausible round trips."),
    B(48, "A ping without a response ends at its deadline, leaves nothing behind, and delays no close."),
    B(49, "A message that asks for an acknowledgement gets it after its listeners have returned."),
    B(50, "The peer notices a close at once; each side is notified of the end once."),
    B(51, "A killed peer is noticed after Aeron's timeout and the expiry, and not earlier."),
    B(52, "An outage shorter than the expiry is not a disconnect, and everything arrives."),
    B(53, "A client reconnects five times from its own disconnect listener and leaves nothing behind."),
    B(54, "A client connects again by itself after its server restarted."),
    B(55, "A resumed session continues: connect listeners are not notified again, and its objects still exist."),
    B(56, "A session ends after its timeout; less than a minute, or than its connection takes to end, is refused."),
    B(57, "Messages that were sent during an outage arrive once and in order."),
    B(
        58, "The end of a connection is not buffered; buffering can be switched off, and is bounded.",
        "without buffering a message is refused and not dropped, so the sender knows",
    ),
    B(59, "Messages of a connection arrive in order."),
    B(60, "A slow receiver loses no messages; the sender's wait for it can be bounded."),
    B(61, "Messages of sizes around the MTU, of 64 KiB and of 32 MiB arrive unchanged."),
    B(62, "Files of 0 bytes to more than 2 GiB arrive complete; small ones stay in memory, others go to disk."),
    B(63, "A transfer that ends early, or has data beyond its announced size, is refused and not delivered."),
    B(64, "A failed sender or a lost connection leaves nothing of its transfers; their number and bytes are limited."),
    B(65, "Transfers with equal ids of two connections do not mix."),
    B(66, "Remote objects are found by name or number, created with arguments, called and deleted."),
    B(67, "A remote call ends at its deadline; with 0 it waits without one."),
    B(68, "The caller gets a remote exception with kind and text, or a general error if the kind is not registered."),
    B(
        69, "A one-way call returns at once; one-way proxies and proxies with a timeout can be combined.",
        "such a call returns nothing, because it has no result yet",
    ),
    B(70, "A reference that returns to its owner is the object; numbers of two clients do not mix; large ones work."),
    B(71, "A late response, or a response from another connection, is ignored."),
    B(72, "A million one-way calls arrive, and a thousand calls with responses."),
    B(73, "Listeners by type, by base type and of a connection are called; an exception reaches on_error alone."),
    B(
        74, "Users with equal settings share a media driver; after the last user it stops and leaves no directory.",
        tests=(
            "test_concurrent_processes_share_one_node",
            "test_a_node_starts_serves_and_stops_when_unused",
            "test_a_node_in_use_is_not_stopped_unless_it_is_forced",
        ),
    ),
    B(
        75, "A new media driver takes over the directory of a killed one.",
        tests=("test_a_killed_node_is_replaced_immediately_and_its_recordings_are_complete",),
    ),
    B(
        76, "Counters, backlog, errors, losses, heartbeat and version of the media driver are visible.",
        tests=(
            "test_the_package_reads_process_and_counters_of_a_driver_from_its_files",
            "test_counters_backlog_and_errors_of_a_driver_are_shown",
            "test_backlog_is_the_bytes_that_a_subscriber_has_not_consumed",
            "test_losses_are_reported_by_stream",
        ),
    ),
    B(77, "A dead peer does not disturb the media driver's other users."),
    B(78, "Thirty clients connect at once and leave, and nothing stays behind."),
    B(79, "Closing during connecting, or before listening, ends soon."),
    B(80, "The shared memory for a HELLO of an unauthenticated sender is bounded and released."),
    B(81, "An idle endpoint uses almost no processor time."),
    B(82, "Echo 1.0: HELLO is not echoed, every later message is."),
    B(83, "Echo 1.0: a message that is not HELLO changes nothing; invalid ports are refused; the server continues."),
    B(84, "Echo 1.0: text beyond ASCII comes back unchanged."),
    B(85, "Echo 2.0: a client introduces itself and gets echoes."),
    B(86, "Echo 2.0: the response has the grammar of the reference, and a new key each time."),
    B(87, "Echo 2.0: every malformed HELLO gets a response."),
    B(88, "Echo 2.0: the limit of the server is reported before the limit by address."),
    B(89, "Echo 2.0: a duologue that no client joins is released."),
    B(90, "Echo 2.0: a second HELLO does not orphan the first duologue."),
    B(91, "Echo 2.0: only the address that requested a duologue may use it."),
    B(92, "Echo 2.0: a wrong session id cannot join."),
    B(93, "Echo 2.0: an unknown verb ends the duologue with an error and releases it."),
    B(94, "Echo 2.0: an error in the duologue ends the client."),
    B(95, "Echo 2.0: long texts are echoed or refused, never dropped without a response."),
    B(96, "Echo 2.0: messages for other clients are ignored; each step has ten seconds, and a timeout names its step."),
    B(97, "Echo 2.0: two clients never have one session id."),
    B(98, "Echo 2.0: a client that does not read delays no other client."),
    B(99, "Echo 2.0: a server on IPv6 works."),
    B(100, "Echo: a signal ends it soon, and nothing stays behind."),
)  # fmt: skip


def all_tests(folder: Path = TESTS) -> Iterator[FoundTest]:
    """Yield all test functions and methods below ``folder``."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield FoundTest(node.name, path.relative_to(folder.parent).as_posix())


def rows_in(name: str) -> tuple[int, ...]:
    """Return the rows in a test's name."""
    return tuple(int(row) for row in _ROW.findall(name))


def group_by_row(tests: Iterator[FoundTest]) -> Mapping[int, list[FoundTest]]:
    """Return the tests of each row, ordered by file."""
    found: dict[int, list[FoundTest]] = {behaviour.row: [] for behaviour in BEHAVIOURS}
    named = {name: behaviour.row for behaviour in BEHAVIOURS for name in behaviour.tests}
    for test in tests:
        for row in dict.fromkeys((*rows_in(test.name), *([named[test.name]] if test.name in named else ()))):
            found.setdefault(row, []).append(test)
    return found


def markdown(tests: Iterator[FoundTest]) -> str:
    """Return the text of ``docs/behaviours.md``."""
    shown = group_by_row(tests)
    lines = [_HEAD, "| row | behaviour | shown by |", "|---|---|---|"]
    for one in BEHAVIOURS:
        text = f"{one.text} *Different here: {one.difference}.*" if one.difference else one.text
        where = "<br>".join(f"`{test.path.removeprefix('tests/')}` {test.name}" for test in shown[one.row])
        lines.append(f"| {one.row} | {text} | {where or 'nothing yet'} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown(all_tests()))
