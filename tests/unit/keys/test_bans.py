"""Bans: which keys and addresses they cover, their expiry in virtual time, and their file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aeron_spark.errors import DataFormatError, RefusedError, TransportError
from aeron_spark.keys import bans as bans_module
from aeron_spark.keys.bans import Ban, BanTable, StoredBans
from aeron_spark.protocol.keypair import keypair_from, public_text
from aeron_spark.protocol.sources import Network, Refusal, canonical_address

KEY = keypair_from(b"k" * 32).public
OTHER_KEY = keypair_from(b"o" * 32).public
NET = Network.parse("192.0.2.0/24")
NOW = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def is_banned(table: BanTable, address: str, now: float = NOW) -> bool:
    return table.address_refusal(canonical_address(address), now) is not None


def test_a_banned_key_is_refused_until_the_ban_expires_and_the_text_says_when() -> None:
    table = BanTable([Ban(KEY, NOW, NOW + 3600.0, "leaked")])
    assert table.key_refusal(KEY, NOW) == Refusal("banned", "Your key is banned until 2027-01-15T09:00:00Z")
    assert table.key_refusal(KEY, NOW + 3599.9) is not None
    assert table.key_refusal(KEY, NOW + 3600.0) is None
    assert table.key_refusal(OTHER_KEY, NOW) is None


def test_a_ban_without_an_end_applies_for_good() -> None:
    table = BanTable([Ban(NET, NOW)])
    assert table.address_refusal(canonical_address("192.0.2.9"), 1e12) == Refusal("banned", "Your address is banned")


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
        ("192.0.2.7/32", "192.0.2.7", "192.0.2.8"),
        ("0.0.0.0/0", "203.0.113.1", "::1"),
        ("2001:db8::/64", "2001:db8::ffff", "2001:db8:0:1::"),
        ("::/0", "2001:db8::1", "192.0.2.7"),
        ("::ffff:192.0.2.0/120", "192.0.2.7", "192.0.3.7"),
    ],
)
def test_a_network_covers_its_addresses_of_one_ip_version(network: str, inside: str, outside: str) -> None:
    table = BanTable([Ban(Network.parse(network), NOW)])
    assert is_banned(table, inside)
    assert not is_banned(table, outside)


def test_an_expired_ban_of_a_network_does_not_hide_a_wider_one() -> None:
    table = BanTable([Ban(Network.parse("192.0.2.7"), NOW, NOW + 1.0), Ban(NET, NOW)])
    assert is_banned(table, "192.0.2.7", NOW + 2.0)


def test_a_later_ban_replaces_the_earlier_one_and_expired_ones_go() -> None:
    table = BanTable([Ban(KEY, NOW), Ban(NET, NOW, NOW + 1.0), Ban(OTHER_KEY, NOW)])
    later = table.with_bans([Ban(KEY, NOW + 5.0, NOW + 9.0, "again")], NOW + 5.0)
    assert [(ban.subject, ban.reason) for ban in later.bans(NOW + 5.0)] == [(OTHER_KEY, ""), (KEY, "again")]
    assert len(later) == 2
    assert [ban.subject for ban in later.without(OTHER_KEY, NOW + 5.0).bans(NOW + 5.0)] == [KEY]
    assert len(table) == 3


def test_the_file_keeps_bans_over_a_restart_with_a_private_mode(tmp_path: Path) -> None:
    bans = StoredBans(Clock())
    bans.open(tmp_path)
    bans.add({KEY: "desk-7"}, 3600.0, "leaked\nkey")
    bans.add({NET: ""})
    path = tmp_path / "bans.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text()) == {
        "version": 1,
        "bans": [
            {
                "key": public_text(KEY), "name": "desk-7", "since": NOW, "until": NOW + 3600.0, "reason": "leaked\nkey",
            },
            {"address": "192.0.2.0/24", "name": "", "since": NOW, "until": None, "reason": ""},
        ],
    }  # fmt: skip
    restarted = StoredBans(Clock())
    restarted.open(tmp_path)
    assert restarted.all() == bans.all()
    assert restarted.remove(NET) == Ban(NET, NOW)
    assert restarted.remove(NET) is None
    again = StoredBans(Clock())
    again.open(tmp_path)
    assert [ban.subject for ban in again.all()] == [KEY]


def test_bans_expire_with_the_clock(tmp_path: Path) -> None:
    clock = Clock()
    bans = StoredBans(clock)
    bans.open(tmp_path)
    bans.add({KEY: ""}, 60.0)
    assert bans.key_refusal(KEY) is not None
    clock.now += 60.0
    assert (bans.key_refusal(KEY), bans.all(), bans.remove(KEY)) == (None, (), None)


def test_bans_of_a_server_without_a_store_stay_in_memory() -> None:
    bans = StoredBans(Clock())
    bans.open(None)
    bans.add({NET: ""})
    assert bans.address_refusal(canonical_address("192.0.2.1")) is not None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "Expecting value"),
        ("[]", "expected an object with the list 'bans'"),
        ('{"version": 2, "bans": []}', "the format has version 2, expected 1"),
        ('{"version": 1, "bans": [{"since": 1}]}', "is not a ban of a key or an address"),
        ('{"version": 1, "bans": [{"key": "k", "address": "::1", "since": 1}]}', "is not a ban of a key"),
        ('{"version": 1, "bans": [{"key": "k", "since": 1}]}', "'k' is not a public key"),
        ('{"version": 1, "bans": [{"address": "192.0.2.1/24", "since": 1}]}', "has bits beyond its prefix length"),
        ('{"version": 1, "bans": [{"address": "::1", "since": 1, "until": "soon"}]}', "'soon' is not a time"),
        ('{"version": 1, "bans": [{"address": "::1", "since": NaN}]}', "it is not a value of JSON"),
        ('{"version": 1, "bans": [{"address": "::1", "since": 1, "until": 1e12}]}', "'1000000000000.0' is not a time"),
        ('{"version": 1, "bans": [{"address": "::1"}]}', "has no time 'since'"),
        ('{"version": 1, "bans": [{"address": "::1", "since": 1, "reason": 2}]}', "is not a string"),
    ],
)
def test_a_damaged_file_is_an_error_that_says_what_the_remedy_does(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "bans.json").write_text(content)
    with pytest.raises(DataFormatError) as caught:
        StoredBans(Clock()).open(tmp_path)
    assert caught.value.what.startswith(f"the bans in {tmp_path}/bans.json are damaged: ")
    assert problem in caught.value.what
    assert "Without the file, no key and no address is banned" in caught.value.remedy


def test_a_file_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    bans = StoredBans(Clock())
    bans.open(tmp_path)
    (tmp_path / "bans.json.new").mkdir()  # in place of the draft
    with pytest.raises(TransportError, match="cannot be written"):
        bans.add({KEY: ""})
    assert bans.key_refusal(KEY) is None


def test_the_number_of_bans_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bans_module, "MAX_BANS", 1)
    bans = StoredBans(Clock())
    bans.add({NET: ""})
    bans.add({NET: ""}, 60.0)
    with pytest.raises(RefusedError, match="has 1 bans, which is the limit"):
        bans.add({KEY: ""})
