"""The clients file of a server: keys, roles, grants, conditions, limits and errors."""

from __future__ import annotations

import hashlib
import random
import time
from ipaddress import ip_address
from pathlib import Path

import pytest

from aeron_spark.errors import DataFormatError, SetupError
from aeron_spark.keys.clients_file import default_name, parse_clients, read_clients
from aeron_spark.protocol.grants import STREAM_ACTIONS, Grant, KeyLimits
from aeron_spark.protocol.keypair import new_keypair, public_text

JUNE_30 = 1_814_313_600.0  # 2027-06-30 at midnight in UTC


def public_key(number: int) -> bytes:
    return new_keypair(random.Random(number).randbytes).public


KEYS = [public_key(number) for number in range(4)]
KEY_TEXT, *OTHER_TEXTS = [public_text(key) for key in KEYS]


def grant_of(*lines: str) -> Grant:
    """Return the grant of the first key in a file with these lines."""
    return parse_clients("\n".join(lines)).grants("file")[KEYS[0]]


def errors_of(*lines: str) -> list[tuple[int, str]]:
    return [(one.number, f"{one.what}. {one.remedy}") for one in parse_clients("\n".join(lines)).wrong]


def test_a_key_without_options_may_do_nothing() -> None:
    grant = grant_of(f"{KEY_TEXT}  Alice's   desk = 7\r")
    assert grant == Grant(name=default_name(KEYS[0]))
    assert grant.comment == "Alice's   desk = 7"
    for action in STREAM_ACTIONS:
        assert not grant.may_use("prices", action)
    assert not grant.may_see("prices")
    assert not grant.may_call("catalog.get")
    assert not grant.may_pass_messages("send")
    assert not grant.may_pass_messages("receive")
    assert not grant.may_send_files()
    assert grant.may_write_as("w") is None
    assert grant.refusal("any tag", ip_address("10.0.0.1"), 0.0) is None


def test_all_allows_every_action() -> None:
    grant = grant_of(f"all name=ops {KEY_TEXT}")
    assert all(grant.may_use("prices", action) for action in STREAM_ACTIONS)
    assert grant.may_see("prices")
    assert grant.may_call("catalog.get")
    assert grant.may_pass_messages("send")
    assert grant.may_pass_messages("receive")
    assert grant.may_send_files()
    assert grant.may_write_as("w")


def test_grants_allow_only_what_they_name_and_repeated_ones_add_up() -> None:
    grant = grant_of(
        "streams=a,b.*:read,write streams=c:all streams=a:purge writers=edge-* writers=x calls=catalog.* calls=e.f "
        f"messages=send files=send {KEY_TEXT}"
    )
    allowed = {(name, action) for name in ("a", "b.1", "c", "d", "A") for action in STREAM_ACTIONS
               if grant.may_use(name, action)}  # fmt: skip
    assert allowed == {
        ("a", "read"), ("a", "write"), ("a", "purge"), ("b.1", "read"), ("b.1", "write"),
        *(("c", action) for action in STREAM_ACTIONS),
    }  # fmt: skip
    assert [grant.may_see(name) for name in ("a", "b.2", "c", "d")] == [True, True, True, False]
    assert [grant.may_write_as(name) for name in ("edge-7", "x", "edge", "y")] == [True, True, False, False]
    assert [grant.may_call(name) for name in ("catalog.get", "e.f", "e.g")] == [True, True, False]
    assert grant.may_pass_messages("send")
    assert not grant.may_pass_messages("receive")
    assert grant.may_send_files()


def test_a_client_must_meet_every_condition() -> None:
    grant = grant_of(
        f"tag=desk-*,test tag=*7 from=10.0.0.0/8,192.168.1.1 expires=2027-06-30 expires=2028-01-01 {KEY_TEXT}"
    )
    inside, outside = ip_address("10.1.2.3"), ip_address("11.0.0.1")
    assert grant.refusal("desk-7", inside, 0.0) is None
    assert grant.refusal("desk-7", None, 0.0) is None  # shared memory has no address
    assert grant.expires == JUNE_30
    for refused, code in (
        (grant.refusal("desk-8", inside, 0.0), "tag"),
        (grant.refusal("test", inside, 0.0), "tag"),
        (grant.refusal("desk-7", outside, 0.0), "not-permitted"),
        (grant.refusal("desk-7", inside, JUNE_30), "key"),
    ):
        assert refused.code == code


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2027-06-30", JUNE_30),
        ("2027-06-30T00:00:00Z", JUNE_30),
        ("2027-06-30t02:00:00.123+02:00", JUNE_30),
        ("2027-06-29T20:00:00-04:00", JUNE_30),
    ],
)
def test_a_key_expires_at_a_day_in_utc_or_at_a_time_with_its_zone(text: str, seconds: float) -> None:
    assert grant_of(f"expires={text} {KEY_TEXT}").expires == seconds


def test_a_role_may_be_defined_after_its_use_and_have_roles() -> None:
    text = [
        f"role=prices,more name=desk-7 tag=desk-* {KEY_TEXT} a comment",
        "role prices role=base streams=prices.*:read connections=3 bytes-in=1MiB tag=*-7",
        "role more calls=a.b connections=5 expires=2027-06-30",
        "role base messages=receive connections=4 writers=w",
    ]
    grant = grant_of(*text)
    assert grant.name == "desk-7"
    assert grant.may_use("prices.eu", "read")
    assert grant.may_call("a.b")
    assert grant.may_pass_messages("receive")
    assert grant.may_write_as("w")
    assert not grant.may_write_as("x")
    assert grant.expires == JUNE_30
    assert grant.tags == (("desk-*",), ("*-7",))
    assert grant.limits == KeyLimits(connections=5, bytes_in=1 << 20)  # the largest of the roles
    assert grant_of(text[0].replace("name=", "connections=2 name="), *text[1:]).limits.connections == 2
    [entry] = parse_clients("\n".join(text)).entries
    assert list(entry.parts) == ["", "prices", "base", "more"]
    assert entry.parts["prices"].may_use("prices.eu", "read")
    assert not entry.parts[""].may_use("prices.eu", "read")


def test_limits_are_numbers_and_sizes() -> None:
    assert grant_of(
        f"connections=4 bytes-in=10MiB bytes-out=1g messages-in=1000 stage-bytes=2GiB partitions=12 {KEY_TEXT}"
    ).limits == KeyLimits(4, 10 << 20, 1 << 30, 1000, 2 << 30, 12)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("0042", "'0042' is neither an option nor a key. Options are all, role, streams"),
        (f"stream=prices:read {KEY_TEXT}", "Did you mean 'streams'"),
        (f"calls {KEY_TEXT}", "Did you mean 'calls'"),
        (f"ALL {KEY_TEXT}", "'ALL' is neither an option nor a key"),
        (f"color=red {KEY_TEXT}", "a key begins with aeron-spark:"),
        ("streams=prices:read", "it has no key"),
        (f"streams=prices {KEY_TEXT}", "streams='prices' has no actions. Write streams=PATTERNS:ACTIONS"),
        (f"streams=prices:reed {KEY_TEXT}", "unknown action 'reed'. Did you mean 'read'"),
        (f"streams=prices: {KEY_TEXT}", "unknown action ''. Choose from read, write, create, manage, purge"),
        (f"streams=a:read,all {KEY_TEXT}", "unknown action 'all'"),
        (f"streams=a,,b:read {KEY_TEXT}", "the list 'a,,b' has an empty name"),
        (f"streams=:read {KEY_TEXT}", "the list '' has an empty name"),
        (f"calls= {KEY_TEXT}", "the list '' has an empty name"),
        (f"messages=receives {KEY_TEXT}", "Did you mean 'receive'"),
        (f"files=receive {KEY_TEXT}", "unknown action 'receive'"),
        (f"from=10.0.0.1/8 {KEY_TEXT}", "has bits beyond its prefix length"),
        (f"from=here {KEY_TEXT}", "does not begin with an IP address"),
        (f"expires=tomorrow {KEY_TEXT}", "is not a day or a time with its zone"),
        (f"expires=2027-02-30 {KEY_TEXT}", "is not a day or a time with its zone"),
        (f"expires=2027-06-30T00:00:00 {KEY_TEXT}", "is not a day or a time with its zone"),
        (f"name=desk/7 {KEY_TEXT}", "'desk/7' is not the name of a key"),
        (f"name={'x' * 65} {KEY_TEXT}", "is not the name of a key. Use 1 to 64"),
        (f"name=a name=b {KEY_TEXT}", "the option 'name' is given twice"),
        (f"connections=0 {KEY_TEXT}", "connections='0' is not a whole number of at least 1"),
        (f"connections=1 connections=2 {KEY_TEXT}", "the option 'connections' is given twice"),
        (f"bytes-in=fast {KEY_TEXT}", "bytes-in='fast' is not a size in bytes"),
        (f"role=pricse {KEY_TEXT}", "the role 'pricse' is not defined. Did you mean 'prices'"),
        (f"{KEY_TEXT}x", "is not a public key"),
        ("aeron-spark:AAAA", "is not a public key"),
        (public_text(bytes(32)), "belongs to no private key"),
        (OTHER_TEXTS[0], "its key is already on line 1"),
        (f"name=first {KEY_TEXT}", "the name 'first' is also that of the key on line 1"),
        ("role", "'' is not the name of a role"),
        ("role a/b", "'a/b' is not the name of a role"),
        ("role prices all", "the role 'prices' is already on line 2"),
        (f"role other {KEY_TEXT}", "a role has no key"),
        ("role other name=x", "a role cannot give a name to keys"),
        ("role other role=other", "the roles other -> other form a circle"),
        ("role other stream=x", "Did you mean 'streams'"),
    ],
)
def test_the_error_of_a_wrong_line_has_its_number_and_a_remedy(line: str, text: str) -> None:
    lines = [f"name=first {OTHER_TEXTS[0]}", "role prices streams=prices.*:read", line]
    assert errors_of(*lines[:2]) == []
    [(number, error)] = errors_of(*lines)
    assert number == 3
    assert text in error


def test_the_remedy_for_a_role_in_a_file_without_roles_says_how_to_define_it() -> None:
    """Regression: "Choose from ."."""
    [(_, error)] = errors_of(f"role=nope {KEY_TEXT}")
    assert error == "the role 'nope' is not defined. Add a line that begins with 'role nope '."
    [(_, error)] = errors_of("role prices all", f"role=nope {KEY_TEXT}")
    assert error == "the role 'nope' is not defined. Choose from prices."


def test_all_wrong_lines_are_found_and_the_first_is_named_when_the_file_is_used() -> None:
    lines = [f"a {KEY_TEXT}", "# comment", f"role=b {OTHER_TEXTS[0]}", "role c role=d"]
    assert [number for number, _ in errors_of(*lines)] == [1, 3, 4]
    with pytest.raises(DataFormatError, match=r"^line 1 of /etc/keys is wrong: .* \(2 more lines are wrong\)"):
        parse_clients("\n".join(lines)).grants("/etc/keys")


def test_a_role_of_many_roles_is_resolved_once() -> None:
    """Regression: each role in a role was resolved again, so sixteen lines took 65,000 steps."""
    chain = [f"role r{number} role={','.join([f'r{number + 1}'] * 8)}" for number in range(15)]
    lines = [*chain, "role r15 streams=prices:read", f"role=r0 {KEY_TEXT}"]
    assert grant_of(*lines).may_use("prices", "read")
    for order in (lines, lines[::-1]):
        deeper = ["role s role=r0", *order]
        assert {text.partition(".")[0] for _, text in errors_of(*deeper)} == {
            "the role 's' has roles of roles more than 16 deep"
        }


def test_a_line_and_the_number_of_wrong_lines_have_limits() -> None:
    [(number, error)] = errors_of(KEY_TEXT, "tag=a " * 3_000 + OTHER_TEXTS[0])
    assert (number, error.partition(".")[0]) == (2, "it has 18055 characters, the limit is 16384")
    assert [number for number, _ in errors_of(*["a"] * 1_000)] == [*range(1, 21)]


def test_only_a_line_feed_ends_a_comment() -> None:
    """Some editors show no line break for other separators, which could hide a key from a reader of the file."""
    parsed = parse_clients(f"{KEY_TEXT} comment\u2028{OTHER_TEXTS[0]}\x0b{OTHER_TEXTS[1]}")
    assert [entry.key for entry in parsed.entries] == [KEYS[0]]
    assert not parsed.wrong


def test_a_file_that_another_user_can_change_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "authorized_keys"
    with pytest.raises(SetupError, match="does not exist"):
        read_clients(path)
    path.write_text(f"all {KEY_TEXT}\n")
    path.chmod(0o644)
    assert read_clients(path).grants(str(path))[KEYS[0]].everything
    path.chmod(0o664)
    with pytest.raises(SetupError, match="can be changed by others"):
        read_clients(path)
    path.chmod(0o600)
    path.write_bytes(b"\xff")
    with pytest.raises(DataFormatError, match="is not UTF-8"):
        read_clients(path)


def parse_seconds(lines: list[str]) -> float:
    """Return the processor time in seconds that parsing a file with these keys takes."""
    started = time.process_time()
    parsed = parse_clients("\n".join(["role prices streams=prices.*:read", *lines]))
    seconds = time.process_time() - started
    assert len(parsed.grants("file")) == len(lines)
    return seconds


@pytest.mark.slow
def test_the_processor_time_of_a_file_grows_with_its_keys_and_no_faster() -> None:
    many = [f"role=prices name=desk-{number} {public_text(public_key(number))}" for number in range(5_000)]
    few = many[:500]
    # Both are measured alternately, because the speed of a virtual machine changes within a second.
    times = [(parse_seconds(few), parse_seconds(many)) for _ in range(3)]
    of_few, of_many = (min(seconds) for seconds in zip(*times, strict=True))
    assert of_many < 20 * of_few, "a parser that compares each key with all others takes up to 100 times as long"


def test_keys_whose_hashes_begin_alike_have_different_names() -> None:
    """A program finds such a key for a given one, and could then have another client banned by its name."""
    seen: dict[str, bytes] = {}
    for number in range(1 << 20):  # two of 2**16 keys share their first 32 bits with a probability of 0.4
        key = number.to_bytes(32, "big")
        other = seen.setdefault(hashlib.sha256(key).hexdigest()[:8], key)
        if other != key:
            break
    assert other != key
    assert default_name(other) != default_name(key)
