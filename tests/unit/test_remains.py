"""The check finds the rest in tables at any depth, and the tables that may keep something exist."""

from __future__ import annotations

import pytest

from tests.programs import ROOT
from tests.remains import COUNTS, LASTING, remains_in

MODULES = [*(ROOT / "connector" / "aeron_spark").rglob("*.py"), ROOT / "tests" / "memory_transport.py"]


class Inner:
    __slots__ = ("reads",)

    def __init__(self) -> None:
        self.reads = {7: "a read"}


class Outer:
    def __init__(self) -> None:
        self.links = {1: Inner(), 2: Inner()}
        self.waits: set[int] = set()
        self.myself = self


@pytest.fixture(autouse=True)
def of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Inner, Outer):
        monkeypatch.setattr(kind, "__module__", "aeron_spark.test")


def test_what_tables_keep_is_counted_by_class_and_attribute() -> None:
    one = Outer()
    assert remains_in(one) == {"Outer.links": 2, "Inner.reads": 2}
    one.waits.add(3)
    del one.links[1]
    assert remains_in(one) == {"Outer.links": 1, "Outer.waits": 1, "Inner.reads": 1}
    one.links.clear()
    one.waits.clear()
    assert remains_in(one) == {}


def test_every_lasting_table_exists() -> None:
    texts = [path.read_text(encoding="utf-8") for path in MODULES]
    unknown = []
    for name in LASTING | COUNTS:
        owner, attribute = name.split(".")
        homes = [text for text in texts if f"class {owner}" in text]
        if not any(f" self.{attribute}" in text or f"\n    {attribute}: " in text for text in homes):
            unknown.append(name)
    assert not unknown, f"remove {unknown} from tests/remains.py"
