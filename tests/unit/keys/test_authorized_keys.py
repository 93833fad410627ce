"""The file of a server's authorised keys: grants, comments and errors."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from aeron_spark.errors import DataFormatError, SetupError
from aeron_spark.keys.authorized_keys import parse_authorized, read_authorized
from aeron_spark.protocol.access import Grant
from aeron_spark.protocol.keypair import new_keypair, public_text


def public_key(number: int) -> bytes:
    return new_keypair(random.Random(number).randbytes).public


KEY_TEXT = public_text(public_key(1))
ALL_ACTIONS = frozenset({"read", "write", "manage"})


@pytest.mark.parametrize(
    ("line", "grant", "comment"),
    [
        (KEY_TEXT, Grant(), ""),
        (f"  {KEY_TEXT}  Alice's   desk = 7\r", Grant(), "Alice's   desk = 7"),
        (f"{KEY_TEXT} streams=prices", Grant(), "streams=prices"),
        (f"streams=prices {KEY_TEXT}", Grant(streams=(("prices", ALL_ACTIONS),)), ""),
        (
            f"streams=a,b.*:read,write streams=c:read\tcalls=catalog.* tag=desk-7 {KEY_TEXT} comment",
            Grant(
                (
                    ("a", frozenset({"read", "write"})),
                    ("b.*", frozenset({"read", "write"})),
                    ("c", frozenset({"read"})),
                ),
                ("catalog.*",),
                ("desk-7",),
            ),
            "comment",
        ),
        (f"calls=a.b,c.d calls=e.f {KEY_TEXT}", Grant(calls=("a.b", "c.d", "e.f")), ""),
        (f"streams= calls= tag= {KEY_TEXT}", Grant((), (), ()), ""),
    ],
)
def test_a_line_is_parsed_into_a_key_its_grant_and_its_comment(line: str, grant: Grant, comment: str) -> None:
    parsed = parse_authorized(f"# people\n\n{line}\n", "file")
    assert parsed == {public_key(1): grant}
    assert parsed[public_key(1)].comment == comment


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("prices", "'prices' is neither an option nor a key. Write one of the options streams, calls, tag"),
        (f"stream=prices {KEY_TEXT}", "Did you mean 'streams'"),
        (f"calls {KEY_TEXT}", "Did you mean 'calls'"),
        (f"color=red {KEY_TEXT}", "options streams, calls, tag"),
        ("streams=prices", "it has no key"),
        (f"streams=prices:reed {KEY_TEXT}", "unknown stream action 'reed'. Did you mean 'read'"),
        (f"streams=prices: {KEY_TEXT}", "unknown stream action ''. Choose from manage, read, write"),
        (f"streams=a,,b {KEY_TEXT}", "a comma without a name"),
        (f"calls=a, {KEY_TEXT}", "a comma without a name"),
        (f"{KEY_TEXT}x", "is not a public key"),
        ("aeron-spark:AAAA", "is not a public key"),
        (public_text(bytes(32)), "belongs to no private key"),
        (public_text(public_key(2)), "its key is already on line 1"),
    ],
)
def test_the_error_of_an_invalid_line_names_the_line_and_the_file(line: str, text: str) -> None:
    first = public_text(public_key(2))
    assert parse_authorized(first, "file")
    with pytest.raises(DataFormatError) as raised:
        parse_authorized(f"{first}\n\n{line}\n", "/etc/keys")
    assert str(raised.value).startswith("line 3 of /etc/keys is wrong: ")
    assert text in str(raised.value)


def test_only_a_line_feed_ends_a_comment() -> None:
    """Some editors show no line break for other separators, which could hide a key from a reader of the file."""
    parsed = parse_authorized(
        f"{KEY_TEXT} comment\u2028{public_text(public_key(2))}\x0b{public_text(public_key(3))}", "file"
    )
    assert set(parsed) == {public_key(1)}


def test_the_file_is_refused_if_another_user_can_change_it(tmp_path: Path) -> None:
    path = tmp_path / "authorized_keys"
    with pytest.raises(SetupError, match="does not exist"):
        read_authorized(path)
    path.write_text(f"{KEY_TEXT}\n")
    path.chmod(0o644)
    assert read_authorized(path) == {public_key(1): Grant()}
    path.chmod(0o664)
    with pytest.raises(SetupError, match="can be changed by others"):
        read_authorized(path)
    path.chmod(0o600)
    path.write_bytes(b"\xff")
    with pytest.raises(DataFormatError, match="is not UTF-8"):
        read_authorized(path)
