"""Each kind of Aeron counter that this package allocates has a separate type, and Java knows the same ones."""

from __future__ import annotations

import re
from pathlib import Path

from aeron_spark.aeron.driver import SERVER_TYPE
from aeron_spark.aeron.guard import COOKIE_TYPE, DROP_TYPE, OWNER_TYPE

GUARD = Path(__file__).resolve().parents[2] / "jars" / "src" / "main" / "java" / "io" / "aeronspark" / "guard"


def java_type(name: str) -> int:
    found = re.search(r"COUNTER_TYPE_ID = (\d+);", (GUARD / f"{name}.java").read_text())
    return int(found[1])


def test_the_types_of_counters_differ() -> None:
    types = [SERVER_TYPE, COOKIE_TYPE, DROP_TYPE, OWNER_TYPE]
    assert len(set(types)) == len(types)


def test_the_types_of_the_guards_counters_are_those_of_java() -> None:
    assert java_type("DropCounters") == DROP_TYPE
    assert java_type("OwnerRegistry") == OWNER_TYPE
    assert java_type("CookieRegistry") == COOKIE_TYPE
