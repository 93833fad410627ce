"""Each promise of the pages has tests, and a change that takes tests from a promise is found."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests import promises
from tests.programs import ROOT
from tests.promises import FoundTest, Promise, find_tests, losses, main, markdown, parse, problems, read, shown_by

ROW = re.compile(r"(?:^|_)row_(\d{2,3})(?=_)")
TABLE = """\
# streams
## Retention
Rows beyond the retention are unreadable.
    old_rows_*
A clock that goes ahead deletes nothing.
    a_clock_deletes_nothing
"""


@cache
def project_tests() -> tuple[FoundTest, ...]:
    """Return the tests of this project; cached, because this parses all their files."""
    return tuple(find_tests(ROOT))


def project() -> dict[Promise, dict[str, list[FoundTest]]]:
    """Return the promises of this project with their tests."""
    return shown_by(parse((ROOT / promises.TABLE).read_text(encoding="utf-8")), project_tests())


@pytest.mark.slow
def test_each_promise_of_this_project_has_tests() -> None:
    assert not problems(project())


@pytest.mark.slow
def test_the_page_equals_the_generated_page() -> None:
    assert (ROOT / "docs" / "promises.md").read_text(encoding="utf-8") == markdown(project()), "run: make docs"


@pytest.mark.slow
def test_the_behaviours_of_the_endpoint_are_those_that_tests_name() -> None:
    rows = [int(found[1]) for one in project() if (found := re.match(r"(\d+)\. ", one.text))]
    assert rows == list(range(1, 101))
    named = {int(row) for test in project_tests() for row in ROW.findall(test.name)}
    assert named <= set(rows)


def test_a_table_has_promises_with_patterns_of_names() -> None:
    first, second = parse(TABLE)
    assert first == Promise("streams", "Retention", "Rows beyond the retention are unreadable.", ("old_rows_*",))
    assert (second.tests, second.is_rare) == (("a_clock_deletes_nothing",), False)
    assert parse("# a\nIt holds.\n    full: it_holds\n") == [Promise("a", "", "It holds.", ("it_holds",), True)]
    with pytest.raises(ValueError, match="line 2"):
        parse("# a\n a line with a wrong indent\n")


def project_in(folder: Path, *names: str, source: str = "", table: str = TABLE) -> Path:
    """Make a project with a table and a file of tests."""
    (folder / "tests").mkdir(parents=True)
    (folder / "tests" / "promises.txt").write_text(table)
    (folder / "tests" / "test_a.py").write_text(source + "".join(f"def test_{name}(): ...\n" for name in names))
    return folder


def test_tests_are_found_with_their_marks_and_whether_they_use_only_public_names(tmp_path: Path) -> None:
    source = """\
import pytest
import aeron_spark
from aeron_spark import node
from aeron_spark.errors import RefusedError

@pytest.mark.slow
@pytest.mark.full("it is long")
def test_one(): ...

class Group:
    @pytest.mark.parametrize("a", [pytest.param(1, marks=pytest.mark.full("long"))])
    async def test_two(self): self._private
"""
    path = "tests/test_a.py"
    found = list(find_tests(project_in(tmp_path / "a", source=source)))
    assert found == [FoundTest("one", path, "full", True), FoundTest("two", path, "", True)]
    for internal in (
        "from aeron_spark.streams.ledger import Ledger\n",
        "import aeron_spark.wire\n",
        "client._endpoint\n",
    ):
        root = project_in(tmp_path / str(hash(internal)), "one", source=internal)
        assert list(find_tests(root)) == [FoundTest("one", path)]


def test_a_promise_without_a_test_of_make_test_and_a_wrong_name_are_problems() -> None:
    rare = FoundTest("old_rows_go", "tests/test_a.py", "full")
    first, second = problems(shown_by(parse(TABLE), [rare]))
    assert first.startswith("no test of make test shows: Rows")
    assert second.startswith("no test has the name a_clock_deletes_nothing")
    table = TABLE.replace("    old_rows", "    full: old_rows")
    clock = FoundTest("a_clock_deletes_nothing", "tests/test_a.py", "sampled")
    assert problems(shown_by(parse(table), [rare, clock])) == []
    assert "\n| streams | Retention | 2 | 2 | 0 | 1 |\n" in markdown(shown_by(parse(table), [rare, clock]))


@pytest.mark.parametrize(
    ("names", "source", "table", "expected"),
    [
        (["old_rows_go", "a_clock_deletes_nothing", "more"], "", TABLE, 0),
        (["old_rows_vanish", "a_clock_deletes_nothing"], "", TABLE, 0),
        (["old_rows_go"], "", TABLE, 1),
        (["old_rows_go", "a_clock_deletes_nothing"], "from aeron_spark.wire import chunk\n", TABLE, 2),
        (["old_rows_go"], "", TABLE[: TABLE.index("A clock")], 1),
    ],
    ids=["more tests", "another name", "a test less", "tests of internals", "a promise less"],
)
def test_a_comparison_finds_promises_that_lost_tests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: list[str], source: str, table: str, expected: int
) -> None:
    old = project_in(tmp_path / "old", "old_rows_go", "a_clock_deletes_nothing")
    new = project_in(tmp_path / "new", *names, source=source, table=table)
    assert len(losses(read(old), read(new))) == expected
    assert main(["compare", str(old), str(new)]) == bool(expected)
    assert len(capsys.readouterr().out.splitlines()) == max(1, expected)
