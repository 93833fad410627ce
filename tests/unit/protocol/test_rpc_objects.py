"""Remote objects: who finds which, what a reference becomes, and that nothing stays after the end."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest

from aeron_spark.errors import DataFormatError, OptionError, RemoteError, UsageError
from aeron_spark.protocol.message_types import BuiltIn, Reference
from aeron_spark.protocol.rpc_dispatch import Dispatcher
from aeron_spark.protocol.rpc_messages import Call
from aeron_spark.protocol.rpc_objects import FIRST_SERVICE, LAST_OBJECT_ID, GlobalObjects, Origin, Proxy, remote_of
from tests.unit.protocol.remote_sides import Side, sides


class Counter:
    def __init__(self, value: int = 0) -> None:
        self.value = value

    def add(self, amount: int = 1) -> int:
        self.value += amount
        return self.value

    def secret(self) -> str:
        return "secret"

    def _private(self) -> str:
        return "private"


class Cow:
    """A remote object that keeps what it is given."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.kept: Any = None

    def keep(self, value: object) -> object:
        self.kept = value
        return value

    def call_back(self, other: Any) -> Any:
        return other.add(10)

    def is_me(self, other: object) -> bool:
        return other is self

    def me(self) -> Cow:
        return self

    def calf(self) -> Counter:
        return Counter(5)


def joined(**limits: Any) -> tuple[Side, Side]:
    shared = GlobalObjects()
    shared.register("counter", Counter(), ["add"])
    shared.register("cow", Cow("global"), ["keep", "call_back", "is_me", "me", "calf"])
    shared.factory("counter", Counter, ["add"])
    shared.expose(Counter, ["add"])
    return sides(server=Side(shared, **limits))


def test_row_66_global_and_connection_scope_create_with_arguments_get_and_delete() -> None:
    client, server = joined()
    assert client.remote("counter").add(23) == 23
    server.objects.register(Counter(100), ["add"], 123)
    assert client.remote(123).add() == 101
    made = client.create("counter", 40)
    assert made.add(amount=2) == 42
    assert client.create("counter", value=7).add() == 8
    number = remote_of(made).target
    assert server.objects.find(number) is not None
    client.delete(made)
    assert server.objects.find(number) is None
    with pytest.raises(UsageError, match=f"remote object {number} was deleted"):
        made.add()
    with pytest.raises(RemoteError) as caught:
        client.remote(number).add()
    assert caught.value.code == "unknown-object"


def test_deletion_at_home_ends_the_proxies_at_the_other_side() -> None:
    client, server = joined()
    counter = Counter()
    number = server.objects.register(counter, ["add"])
    proxy = client.remote(number)
    same = client.remote(number).oneway
    assert proxy.add() == 1
    server.end(counter)
    for one in (proxy, same):
        with pytest.raises(UsageError, match="was deleted"):
            one.add()
    assert server.objects.end(counter) is None


def test_a_peer_ends_only_what_it_had_created_or_was_passed() -> None:
    client, server = joined()
    number = server.objects.register(Counter(), ["add"])
    with pytest.raises(RemoteError) as caught:
        client.delete(client.remote(number))
    assert caught.value.code == "not-yours"
    assert client.remote(number).add() == 1
    calf = client.remote("cow").calf()
    assert calf.add() == 6
    client.delete(calf)
    assert len(server.objects) == 1


def test_row_70_a_proxy_passed_back_becomes_the_original_object() -> None:
    client, server = joined()
    proxy = client.remote("cow")
    assert proxy.is_me(proxy) is True
    back = proxy.me()
    assert isinstance(back, Proxy)
    assert back == proxy
    # created objects, too, alone and within containers, and the other way round
    made = client.create("counter", 1)
    proxy.keep([made, {"a": (made,)}])
    cow = server.shared.find("cow")
    assert cow is not None
    kept = cow.value.kept  # type: ignore[attr-defined]
    assert isinstance(kept[0], Counter)
    assert kept[0] is kept[1]["a"][0]
    mine = Counter()
    client.objects.register(mine, ["add"])
    assert proxy.keep(mine) is mine
    assert isinstance(cow.value.kept, Proxy)  # type: ignore[attr-defined]
    assert proxy.call_back(mine) == 10
    assert mine.value == 10


def test_row_70_equal_ids_of_two_clients_stay_separate() -> None:
    shared = GlobalObjects()
    one, server_one = sides(server=Side(shared))
    two, server_two = sides(server=Side(shared))
    one.objects.register(Counter(3), ["add"], 4)
    two.objects.register(Counter(4), ["add"], 4)
    assert [server_one.remote(4).add(), server_two.remote(4).add()] == [4, 5]
    assert server_one.remote(4) != server_two.remote(4)
    with pytest.raises(OptionError, match="another connection"):
        server_one.objects.refer(server_two.remote(4))


@pytest.mark.parametrize("number", [*range(32760, 32780), 65535, 65536, 2**31, 2**32, FIRST_SERVICE - 1])
def test_row_70_ids_above_32767_work(number: int) -> None:
    client, server = joined()
    counter = Counter(number % 1000)
    assert server.objects.register(counter, ["add"], number) == number
    assert client.remote(number).add() == number % 1000 + 1
    assert client.remote("cow").keep(client.remote(number)) == client.remote(number)


def test_an_object_of_an_exposed_class_is_passed_as_reference_and_others_are_not() -> None:
    client, server = joined()
    calf = client.remote("cow").calf()
    assert isinstance(calf, Proxy)
    assert calf.add() == 6
    with pytest.raises(RemoteError) as caught:
        calf["secret"]()
    assert caught.value.code == "unknown-method"
    with pytest.raises(OptionError, match="a Cow is none of"):
        client.remote("cow").keep(Cow())
    assert server.types.encode(Counter(), server.objects).type_id == BuiltIn.REFERENCE


def test_a_reference_to_what_is_gone_is_an_error_and_not_another_object() -> None:
    client, server = joined()
    made = client.create("counter")
    number = remote_of(made).target
    server.objects.end_by_number(number)  # type: ignore[arg-type]
    with pytest.raises(RemoteError) as caught:
        client.remote("cow").keep(made)
    assert caught.value.code == "bad-arguments"
    assert remote_of(client.create("counter")).target != number
    with pytest.raises(DataFormatError, match="not here"):
        server.objects.resolve(Reference(mine=False, target="nobody"))
    with pytest.raises(DataFormatError, match="has the number"):
        server.objects.resolve(Reference(mine=True, target=-1))


def test_own_numbers_are_not_overwritten_and_not_given_twice() -> None:
    _, server = joined()
    chosen = Counter()
    assert server.objects.register(chosen, ["add"], 2) == 2
    assert [server.objects.register(Counter(), ["add"]) for _ in range(3)] == [1, 3, 4]
    found = server.objects.find(2)
    assert found is not None
    assert found.value is chosen
    assert server.objects.register(chosen, ["add"]) == 2
    for number in (2, 0, -1, FIRST_SERVICE, True):
        with pytest.raises(OptionError, match="the number"):
            server.objects.register(Counter(), ["add"], number)
    for number in (FIRST_SERVICE, LAST_OBJECT_ID):  # of what is allowed without a grant
        assert server.objects.register(Counter(), ["add"], number, origin=Origin.SERVICE) == number
    with pytest.raises(OptionError, match="registered already, as 2"):
        server.objects.register(chosen, ["add"], 9)
    server.objects.end_by_number(4)
    assert server.objects.register(Counter(), ["add"]) == 5


def test_objects_of_a_connection_have_a_limit_and_a_refused_creation_leaves_nothing() -> None:
    client, server = joined(max_objects=3)
    made = [client.create("counter") for _ in range(3)]
    for attempt in (lambda: client.create("counter"), lambda: client.remote("cow").calf()):
        with pytest.raises(RemoteError, match="3 remote objects") as caught:
            attempt()
        assert caught.value.code == "bad-result"
    assert len(server.objects) == 3
    client.delete(made[0])
    client.create("counter")


def test_after_close_nothing_is_held_and_nothing_works() -> None:
    client, server = joined()
    counter = Counter()
    gone = weakref.ref(counter)
    number = server.objects.register(counter, ["add"])
    proxy = client.remote(number)
    assert proxy.add() == 1
    server.objects.close()
    client.objects.close()
    del counter
    gc.collect()
    assert gone() is None
    assert len(server.objects) == 0
    with pytest.raises(UsageError, match="was lost with its connection"):
        proxy.add()
    for attempt in (lambda: server.objects.register(Counter(), ["add"]), lambda: client.remote("counter")):
        with pytest.raises(UsageError, match="has ended"):
            attempt()


def test_proxies_that_nobody_holds_are_not_kept() -> None:
    client, _ = joined()
    for number in range(1, 1000):
        client.remote(number)
    gc.collect()
    assert len(client.objects._remotes) == 0


def test_global_objects_come_and_go() -> None:
    client, server = joined()
    proxy = client.remote("counter")
    assert proxy.add() == 1
    assert server.shared.unregister("counter")
    assert not server.shared.unregister("counter")
    with pytest.raises(RemoteError) as caught:
        proxy.add()
    assert caught.value.code == "unknown-object"
    server.shared.register("counter", Counter(5), ["add"])
    assert proxy.add() == 6


@pytest.mark.parametrize(
    ("methods", "why"),
    [
        (["ad"], "Counter has no method 'ad'. Did you mean 'add'"),
        (["_private"], "not the name of a public method"),
        (["__init__"], "not the name of a public method"),
        (["value"], "no method 'value'"),
        ([], "no methods of Counter are listed"),
        ([7], "not the name of a public method"),
    ],
)
def test_methods_are_checked_when_they_are_listed(methods: list[Any], why: str) -> None:
    client, server = joined()
    for attempt in (
        lambda: server.shared.register("new", Counter(), methods),
        lambda: server.objects.register(Counter(), methods),
    ):
        with pytest.raises(OptionError, match=why):
            attempt()
    assert "new" not in server.shared.names()
    assert len(server.objects) == 0
    assert isinstance(client.dispatcher, Dispatcher)


def test_names_are_checked() -> None:
    shared = GlobalObjects()
    counter = Counter()
    shared.register("a", counter, ["add"])
    for name, value, why in (
        ("a", Counter(), "registered already"),
        ("b", counter, "registered already, as 'a'"),
        ("", Counter(), "not usable"),
        ("x" * 256, Counter(), "not usable"),
    ):
        with pytest.raises(OptionError, match=why):
            shared.register(name, value, ["add"])
    assert shared.names() == ("a",)


def test_a_proxy_stays_with_its_connection() -> None:
    client, _ = joined()
    proxy = client.remote("counter")
    for attempt in (pickle.dumps, copy.copy):
        with pytest.raises(UsageError, match="belongs to its connection"):
            attempt(proxy)


def test_a_target_of_a_call_that_is_neither_name_nor_number_is_refused() -> None:
    client, _ = joined()
    for target in (0, -5, "", "x" * 256):
        with pytest.raises(RemoteError) as caught:
            client.ask(Call(target, "add"))
        assert caught.value.code == "bad-arguments"
