"""The repository's issue forms, the hooks before a commit, and the order of the site's pages."""

from __future__ import annotations

import shlex

import pytest
import yaml

from tests.programs import ROOT


@pytest.mark.parametrize("name", ["bug.yml", "feature.yml"])
def test_an_issue_form_asks_what_doctor_prints(name: str) -> None:
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / name).read_text(encoding="utf-8"))
    assert form["name"]
    assert form["description"]
    fields = {item["id"]: item for item in form["body"] if "id" in item}
    assert "aeron-spark doctor" in fields["doctor"]["attributes"]["label"]
    assert fields["doctor"].get("validations", {}).get("required", False) is (name == "bug.yml")


def test_the_hooks_call_the_tools_of_lint() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [shlex.split(hook["entry"])[:2] for repository in config["repos"] for hook in repository["hooks"]]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    _, _, lint = makefile.partition("\nlint:")
    lint = lint.partition("\n\n")[0].replace("$(BIN)", ".venv/bin")
    assert hooks
    assert all(" ".join(words[:2]).partition(" --")[0] in lint for words in hooks)


def test_the_site_has_each_page_once() -> None:
    index = (ROOT / "site" / "index.md").read_text(encoding="utf-8")
    listed = [f"{line.rpartition('<')[2].strip('>')}.md" for line in index.splitlines() if "../" in line]
    pages = {f"../docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    folders = {f"../docs/{name}/*.md" for name in ("commands", "performance", "decisions")}
    assert sorted(listed) == sorted(
        {*pages, *folders, "../README.md", "../CHANGELOG.md", "../CONTRIBUTING.md", "../SECURITY.md"}
    )
