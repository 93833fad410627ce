"""Proxies: the remote calls that a program makes with them."""

from __future__ import annotations

from typing import Any

import pytest

from aeron_spark.errors import OptionError, UsageError
from aeron_spark.protocol.rpc_messages import Call, Target
from aeron_spark.protocol.rpc_objects import CALL_TIMEOUT, Mode, Proxy, Remote


class Recorder:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, call: Call, mode: Mode, timeout: float | None) -> Any:
        self.calls.append((call.target, call.method, call.args, call.kwargs, mode, timeout))
        return "result" if mode is Mode.SYNC else None


def proxy_of(target: Target = "catalog") -> tuple[Proxy, Recorder]:
    recorder = Recorder()
    return Proxy(Remote(target, recorder), recorder), recorder


def test_an_attribute_is_a_method_of_the_remote_object() -> None:
    proxy, recorder = proxy_of()
    assert proxy.describe("flights", deep=True) == "result"
    assert recorder.calls == [("catalog", "describe", ("flights",), {"deep": True}, Mode.SYNC, CALL_TIMEOUT)]


def test_row_69_a_one_way_call_returns_none_and_a_derived_proxy_does_not_change_the_original() -> None:
    proxy, recorder = proxy_of()
    assert proxy.oneway.describe() is None
    assert proxy.oneway.with_timeout(7).describe() is None
    assert proxy.with_timeout(7).oneway.describe() is None
    assert proxy.with_timeout(9).describe() == "result"
    assert proxy.with_timeout(0).describe() == "result"
    assert proxy.with_timeout(None).describe() == "result"
    assert proxy.describe() == "result"
    assert [call[4:] for call in recorder.calls] == [
        (Mode.ONE_WAY, CALL_TIMEOUT),
        (Mode.ONE_WAY, 7),
        (Mode.ONE_WAY, 7),
        (Mode.SYNC, 9),
        (Mode.SYNC, None),
        (Mode.SYNC, None),
        (Mode.SYNC, CALL_TIMEOUT),
    ]


def test_a_method_of_any_name_can_be_called() -> None:
    proxy, recorder = proxy_of()
    proxy["oneway"](1)
    proxy.oneway["with_timeout"](2)
    assert [call[1] for call in recorder.calls] == ["oneway", "with_timeout"]


def test_private_names_are_not_remote_methods() -> None:
    proxy, recorder = proxy_of()
    for name in ("_x", "__len__", "__deepcopy__", "_repr_html_"):
        assert not hasattr(proxy, name)
    assert recorder.calls == []


def test_proxies_of_the_same_object_are_equal() -> None:
    proxy, recorder = proxy_of()
    assert proxy == proxy.oneway == Proxy(Remote("catalog", recorder), print)
    assert hash(proxy) == hash(proxy.oneway)
    assert proxy != Proxy(Remote("other", recorder), recorder)
    assert proxy != Proxy(Remote("catalog", object()), recorder)
    assert proxy != "catalog"
    assert repr(proxy) == "<remote object 'catalog'>"
    assert repr(proxy_of(5)[0]) == "<remote object 5>"
    assert recorder.calls == []


def test_unsupported_operations_of_a_proxy_are_errors() -> None:
    proxy, recorder = proxy_of()
    with pytest.raises(UsageError, match="name of remote object 'catalog' cannot be set"):
        proxy.name = 1
    with pytest.raises(TypeError, match="iterated"):
        iter(proxy)
    with pytest.raises(OptionError, match="invalid timeout"):
        proxy.with_timeout(-1)
    assert recorder.calls == []
