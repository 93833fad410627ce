"""An error reaches the subscriber and each error listener, also if one of them fails; without any, it is logged."""

from __future__ import annotations

import pytest

from aeron_spark.endpoint.endpoint_listeners import EndpointListeners, ErrorReported
from aeron_spark.facts import Bus
from tests.internals import core_of
from tests.unit.endpoint.endpoints import World, wait_for

ERROR = ValueError("wrong")


def fail(connection: object, error: BaseException) -> None:
    raise ZeroDivisionError("a listener fails")


def test_an_observer_or_a_listener_that_fails_keeps_no_error_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    facts, errors = Bus(), []
    listeners = EndpointListeners(facts)
    facts.on(ErrorReported, lambda fact: fail(fact.connection, fact.error))
    listeners.add("error", fail)
    listeners.add("error", lambda connection, error: errors.append(error))
    listeners.report(None, ERROR)
    assert errors == [ERROR]
    assert [record.message for record in caplog.records] == ["an error listener failed"] * 2


def test_an_observer_gets_the_core_and_a_listener_the_connection_of_the_program(world: World) -> None:
    facts, observed, heard = Bus(), [], []
    listeners = EndpointListeners(facts)
    facts.on(ErrorReported, observed.append)
    listeners.add("error", lambda *arguments: heard.append(arguments))
    world.server()
    client = world.client()
    listeners.report(core_of(client.connection), ERROR)
    assert observed == [ErrorReported(core_of(client.connection), ERROR)]
    assert heard == [(client.connection, ERROR)]


def test_the_listeners_of_the_end_of_a_connection_get_the_connection_of_the_program(world: World) -> None:
    world.server()
    client, heard = world.client(), []
    connection = client.connection
    client.on_disconnect(heard.append)
    connection.on_disconnect(heard.append)
    client.close()
    wait_for(lambda: len(heard) == 2, "both listeners")
    assert heard == [connection, connection]


def test_an_error_without_observer_and_listener_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    facts = Bus()
    listeners = EndpointListeners(facts)
    listeners.report(None, ERROR)
    facts.on(ErrorReported, lambda _: None)
    listeners.report(None, ERROR)
    assert [record.message for record in caplog.records] == ["endpoint: wrong"]
