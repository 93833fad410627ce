"""Rules as parameters of a channel, and owners as keys of counters."""

from __future__ import annotations

import pytest

from aeron_spark.aeron.guard import GuardRules, SessionOwner, guarded, has_guard, suppliers
from aeron_spark.errors import OptionError, TransportError
from tests.aeron.guard.drivers import Driver
from tests.aeron.guard.endpoints import subscription_on_free_port
from tests.ports import free_port


def test_rules_become_channel_parameters_without_those_that_are_not_set() -> None:
    rules = GuardRules(streams=(1, 2), term_length=65536, deny=("10.0.0.0/8", "2001:db8::/32"))
    assert guarded("aeron:udp?endpoint=h:1", rules) == (
        "aeron:udp?endpoint=h:1|guard=true|guard-streams=1,2|guard-term-length=65536|guard-deny=10.0.0.0/8,2001:db8::/32"
    )


@pytest.mark.parametrize("wrong", [{"sessions": 0}, {"rate": 2**31}, {"allow": ("host/8",)}, {"deny": ("10.0.0.1/8",)}])
def test_an_invalid_rule_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        GuardRules(**wrong)


def test_an_owners_key_has_the_documented_layout() -> None:
    key = SessionOwner("published", 40101, -2, 3, "192.0.2.1", 9).key()
    assert key.hex() == "0100000002000000a59c0000feffffff0300000009000000" + "00" * 10 + "ffffc0000201"
    assert SessionOwner("received", 1, 2, 3, "2001:db8::1").key()[24:].hex() == "20010db8" + "0" * 22 + "01"


@pytest.mark.parametrize("parameter", ["guard-session=3", "guard=yes", "guard-allow=localhost", "guard-rate=0"])
def test_the_driver_refuses_an_invalid_guard_parameter(driver: Driver, parameter: str) -> None:
    guard = "" if parameter.startswith("guard=") else "guard=true|"
    with pytest.raises(TransportError, match=r"guard|localhost"):
        driver.client.subscription(f"aeron:udp?endpoint=127.0.0.1:{free_port()}|{guard}{parameter}", 1)


def test_the_guards_suppliers_are_found_and_a_driver_reports_its_guard(driver: Driver) -> None:
    assert set(suppliers()) == {
        "receiveChannelEndpointSupplier",
        "sendChannelEndpointSupplier",
        "congestControlSupplier",
    }
    with subscription_on_free_port(driver, 1, GuardRules()):
        assert has_guard(str(driver.aeron_dir))
