"""Lists the tests that only `make test-full` runs, by file, with the reasons in their marks.

``python -m tests.only_full FILE`` replaces the table in ``FILE``; ``tests/unit/test_only_full.py`` compares it.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent
HEAD: Final = "| tests | why `make test` goes without |\n|---|---|\n"


def reasons_in(source: str) -> list[str]:
    """Return the reasons of the ``full`` marks in a test file, in order and without repetition."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    marks = [call for call in calls if ast.unparse(call.func) == "pytest.mark.full"]
    # the tests of the mark itself use invented arguments
    found = [
        (mark.lineno, ast.literal_eval(mark.args[0])) for mark in marks if not isinstance(mark.args[0], ast.Starred)
    ]
    return list(dict.fromkeys(reason for _, reason in sorted(found)))


def rows(folder: Path = TESTS) -> dict[str, list[str]]:
    """Return the reasons of the test files below ``folder``, by path relative to the repository."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("test_*.py"))}
    found = {path: reasons_in(source) for path, source in sources.items() if "pytest.mark.full" in source}
    return {path.relative_to(folder.parent).as_posix(): reasons for path, reasons in found.items() if reasons}


def table(folder: Path = TESTS) -> str:
    """Return the table for docs/tests.md."""
    return HEAD + "".join(f"| `{path}` | {'; '.join(reasons)} |\n" for path, reasons in rows(folder).items())


def replaced(page: str, new: str) -> str:
    """Return ``page`` with its table replaced by ``new``."""
    before, head, after = page.partition(HEAD)
    if not head:
        raise ValueError(f"the page has no table that begins with: {HEAD}")
    lines = after.splitlines(keepends=True)
    end = next((at for at, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return before + new + "".join(lines[end:])


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(replaced(page.read_text(encoding="utf-8"), table()), encoding="utf-8")
