"""Remote objects: registration, references, limits, and their end."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest

from aeron_spark.errors import DataFormatError, OptionError, RemoteError, UsageError
from aeron_spark.protocol.message_types import BuiltIn, Reference
from aeron_spark.protocol.rpc_messages import FIRST_SERVICE
from aeron_spark.protocol.rpc_objects import LAST_OBJECT_ID, GlobalObjects, Origin, Proxy, remote_of
from tests.unit.protocol.rpc_ends import RpcEnd, connected_ends


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
    """A remote object that keeps its last argument."""

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


def connect(**limits: Any) -> tuple[RpcEnd, RpcEnd]:
    shared = GlobalObjects()
    shared.register("counter", Counter(), ["add"])
    shared.register("cow", Cow("global"), ["keep", "call_back", "is_me", "me", "calf"])
    shared.factory("counter", Counter, ["add"])
    shared.expose(Counter, ["add"])
    return connected_ends(server=RpcEnd(shared, **limits))


def test_row_66_objects_can_be_registered_globally_or_for_a_connection_created_and_deleted() -> None:
    client, server = connect()
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


def test_the_end_of_a_local_object_ends_the_proxies_of_the_peer() -> None:
    client, server = connect()
    counter = Counter()
    number = server.objects.register(counter, ["add"])
    proxy = client.remote(number)
    oneway = client.remote(number).oneway
    assert proxy.add() == 1
    server.end(counter)
    for one in (proxy, oneway):
        with pytest.raises(UsageError, match="was deleted"):
            one.add()
    assert server.objects.end(counter) is None


def test_a_peer_can_delete_only_created_and_passed_objects() -> None:
    client, server = connect()
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
    client, server = connect()
    proxy = client.remote("cow")
    assert proxy.is_me(proxy) is True
    result = proxy.me()
    assert isinstance(result, Proxy)
    assert result == proxy
    # also created objects, alone and within containers, and objects of the client
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
    one, server_one = connected_ends(server=RpcEnd(shared))
    two, server_two = connected_ends(server=RpcEnd(shared))
    one.objects.register(Counter(3), ["add"], 4)
    two.objects.register(Counter(4), ["add"], 4)
    assert [server_one.remote(4).add(), server_two.remote(4).add()] == [4, 5]
    assert server_one.remote(4) != server_two.remote(4)
    with pytest.raises(OptionError, match="another connection"):
        server_one.objects.refer(server_two.remote(4))


@pytest.mark.parametrize("number", [*range(32760, 32780), 65535, 65536, 2**31, 2**32, FIRST_SERVICE - 1])
def test_row_70_ids_above_32767_work(number: int) -> None:
    client, server = connect()
    counter = Counter(number % 1000)
    assert server.objects.register(counter, ["add"], number) == number
    assert client.remote(number).add() == number % 1000 + 1
    assert client.remote("cow").keep(client.remote(number)) == client.remote(number)


def test_an_object_of_an_exposed_class_is_passed_as_reference_and_others_are_not() -> None:
    client, server = connect()
    calf = client.remote("cow").calf()
    assert isinstance(calf, Proxy)
    assert calf.add() == 6
    with pytest.raises(RemoteError) as caught:
        calf["secret"]()
    assert caught.value.code == "unknown-method"
    with pytest.raises(OptionError, match="its type Cow is not one of"):
        client.remote("cow").keep(Cow())
    assert server.types.encode(Counter(), server.objects).type_id == BuiltIn.REFERENCE


def test_a_reference_to_a_deleted_object_is_an_error() -> None:
    client, server = connect()
    made = client.create("counter")
    number = remote_of(made).target
    server.objects.end_by_number(number)  # type: ignore[arg-type]
    with pytest.raises(RemoteError) as caught:
        client.remote("cow").keep(made)
    assert caught.value.code == "bad-arguments"
    assert remote_of(client.create("counter")).target != number
    with pytest.raises(DataFormatError, match="does not exist"):
        server.objects.resolve(Reference(mine=False, target="nobody"))
    with pytest.raises(DataFormatError, match="invalid number -1"):
        server.objects.resolve(Reference(mine=True, target=-1))


def test_chosen_numbers_are_unique_and_are_not_allocated_again() -> None:
    _, server = connect()
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
    for number in (FIRST_SERVICE, LAST_OBJECT_ID):  # numbers of services
        assert server.objects.register(Counter(), ["add"], number, origin=Origin.SERVICE) == number
    with pytest.raises(OptionError, match="already registered as 2"):
        server.objects.register(chosen, ["add"], 9)
    server.objects.end_by_number(4)
    assert server.objects.register(Counter(), ["add"]) == 5


def test_the_objects_of_a_connection_have_a_limit_and_a_refused_creation_registers_none() -> None:
    client, server = connect(max_objects=3)
    made = [client.create("counter") for _ in range(3)]
    for attempt in (lambda: client.create("counter"), lambda: client.remote("cow").calf()):
        with pytest.raises(RemoteError, match="3 remote objects") as caught:
            attempt()
        assert caught.value.code == "bad-result"
    assert len(server.objects) == 3
    client.delete(made[0])
    client.create("counter")


def test_a_closed_registry_keeps_no_objects_and_raises_errors() -> None:
    client, server = connect()
    counter = Counter()
    reference = weakref.ref(counter)
    number = server.objects.register(counter, ["add"])
    proxy = client.remote(number)
    assert proxy.add() == 1
    server.objects.close()
    client.objects.close()
    del counter
    gc.collect()
    assert reference() is None
    assert len(server.objects) == 0
    with pytest.raises(UsageError, match="was lost with its connection"):
        proxy.add()
    for attempt in (lambda: server.objects.register(Counter(), ["add"]), lambda: client.remote("counter")):
        with pytest.raises(UsageError, match="has ended"):
            attempt()


def test_unreferenced_proxies_are_not_kept() -> None:
    client, _ = connect()
    for number in range(1, 1000):
        client.remote(number)
    gc.collect()
    assert len(client.objects._remotes) == 0


def test_global_objects_can_be_unregistered_and_registered_again() -> None:
    client, server = connect()
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
    ("methods", "message"),
    [
        (["ad"], "Counter has no method 'ad'. Did you mean 'add'"),
        (["_private"], "not the name of a public method"),
        (["__init__"], "not the name of a public method"),
        (["value"], "no method 'value'"),
        ([], "no methods of Counter are listed"),
        ([7], "not the name of a public method"),
    ],
)
def test_methods_are_checked_at_the_registration(methods: list[Any], message: str) -> None:
    _, server = connect()
    for attempt in (
        lambda: server.shared.register("new", Counter(), methods),
        lambda: server.objects.register(Counter(), methods),
    ):
        with pytest.raises(OptionError, match=message):
            attempt()
    assert "new" not in server.shared.names()
    assert len(server.objects) == 0


def test_invalid_or_used_names_are_an_error() -> None:
    shared = GlobalObjects()
    counter = Counter()
    shared.register("a", counter, ["add"])
    for name, value, message in (
        ("a", Counter(), "already registered"),
        ("b", counter, "already registered as 'a'"),
        ("", Counter(), "invalid name"),
        ("x" * 256, Counter(), "invalid name"),
    ):
        with pytest.raises(OptionError, match=message):
            shared.register(name, value, ["add"])
    assert shared.names() == ("a",)


def test_a_proxy_cannot_be_copied_or_pickled() -> None:
    client, _ = connect()
    proxy = client.remote("counter")
    for attempt in (pickle.dumps, copy.copy):
        with pytest.raises(UsageError, match="belongs to its connection"):
            attempt(proxy)


def test_a_call_with_an_invalid_target_is_refused() -> None:
    client, _ = connect()
    for target in (0, -5, "", "x" * 256):
        with pytest.raises(RemoteError) as caught:
            client.remote(target).add()
        assert caught.value.code == "bad-arguments"
