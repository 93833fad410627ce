"""A mutant differs from its module in one place, which its seed chooses."""

from __future__ import annotations

from textwrap import dedent

from tests.selection import read_sources
from tools.mutants import covering_tests, mutant

TEXT = dedent(
    """
    def wait(seconds):
        began = clock()
        if not seconds:
            return None
        while clock() - began < seconds:
            sleep(0.1)
        return began
    """
)


def test_each_place_is_changed_once() -> None:
    found = [mutant(TEXT, number / 4) for number in range(4)]
    assert sorted(one[1].text for one in found if one is not None) == [
        "leave out began = clock()",
        "leave out sleep(0.1)",
        "negate not seconds",
        "turn clock() - began < seconds",
    ]


def test_the_text_has_the_change() -> None:
    texts = {one[1].text: one[0] for number in range(4) if (one := mutant(TEXT, number / 4)) is not None}
    assert "    if not not seconds:" in texts["negate not seconds"]
    assert "while clock() - began <= seconds:" in texts["turn clock() - began < seconds"]
    assert "        pass\n    return began" in texts["leave out sleep(0.1)"]


def test_a_module_without_a_place_has_no_mutant() -> None:
    assert mutant("LIMIT = 1\n", 0.5) is None


def test_the_tests_of_a_module_import_it_or_are_in_its_folder() -> None:
    sources = read_sources()
    found = covering_tests(sources, "connector/aeron_spark/protocol/tickets.py")
    assert "tests/unit/protocol/test_tickets.py" in found
    assert "tests/unit/protocol/test_noise.py" in found
    assert "tests/unit/wire/test_values.py" not in found
    exported = covering_tests(sources, "connector/aeron_spark/options/server_options.py")
    assert "tests/unit/server/test_reloading.py" in exported
