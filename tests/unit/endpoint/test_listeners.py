"""Listeners by class: which are called, and in which order."""

from __future__ import annotations

import pytest

from aeron_spark.endpoint.deliveries import Listeners
from aeron_spark.errors import OptionError


class Animal: ...


class Dog(Animal): ...


def test_row_73_listeners_of_the_exact_class_come_first_then_superclasses() -> None:
    listeners = Listeners[str]()
    for cls, name in ((object, "all"), (Animal, "animal 1"), (Dog, "dog"), (Animal, "animal 2"), (str, "text")):
        listeners.add(cls, name)
    assert listeners.matching(Dog) == ("dog", "animal 1", "animal 2", "all")
    assert listeners.matching(Animal) == ("animal 1", "animal 2", "all")
    assert listeners.matching(bool) == ("all",)


def test_listeners_can_be_added_and_removed_later() -> None:
    listeners = Listeners[str]()
    assert listeners.matching(Dog) == ()
    listeners.add(Animal, "a")
    assert listeners.matching(Dog) == ("a",)
    assert listeners.remove(Animal, "a")
    assert not listeners.remove(Animal, "a")
    assert listeners.matching(Dog) == ()


def test_one_listener_registered_twice_is_called_twice() -> None:
    listeners = Listeners[str]()
    listeners.add(Dog, "a")
    listeners.add(Dog, "a")
    assert listeners.matching(Dog) == ("a", "a")
    listeners.remove(Dog, "a")
    assert listeners.matching(Dog) == ("a",)


def test_a_listener_of_a_non_class_is_refused() -> None:
    with pytest.raises(OptionError, match="by which listeners select messages"):
        Listeners[str]().add("Dog", "a")  # type: ignore[arg-type]
