"""docs/dependencies.md has what setup.cfg, the pins and the installed packages say."""

from __future__ import annotations

import re
from configparser import ConfigParser
from importlib import metadata
from xml.etree import ElementTree

from packaging.requirements import Requirement

from tests.programs import ROOT

PAGE = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
EXTRAS = ("spark", "delta", "server")


def rows(columns: int) -> list[list[str]]:
    """Return the cells of the page's rows that begin with a name in code."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    found = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    return [cells for cells in found if len(cells) == columns]


def requirements() -> dict[str, Requirement]:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    texts = setup["options"]["install_requires"].split("\n")
    texts += [line for extra in EXTRAS for line in setup["options.extras_require"][extra].split("\n")]
    found: dict[str, Requirement] = {}
    for text in texts:
        if text and not text.startswith("#"):
            found.setdefault(Requirement(text).name, Requirement(text))
    return found


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(re.findall(r"^([\w-]+)==([^\s;]+)", "\n".join(lines), re.MULTILINE))


def test_the_page_has_each_requirement_with_its_range_and_its_pin() -> None:
    listed = {name: (text, tested) for name, text, tested, _, _ in rows(5)}
    assert {name: sorted(text.split(",")) for name, (text, _) in listed.items()} == {
        name: sorted(map(str, requirement.specifier)) for name, requirement in requirements().items()
    }
    assert {name: tested for name, (_, tested) in listed.items()} == {
        name: pins().get(name, "") for name in requirements()
    }


def test_the_licences_are_those_of_the_installed_packages() -> None:
    installed = {found["Name"].lower(): found for found in (part.metadata for part in metadata.distributions())}
    listed = {name: licence for name, _, tested, licence, _ in rows(5) if tested}
    # another version, on another Python, may have another licence: the page is about the pinned one
    compared = [name for name in listed if name in installed and installed[name]["Version"] == pins()[name]]
    assert {"click", "cryptography", "jpype1", "msgspec", "rich"} <= set(compared)
    licences = {name: installed[name] for name in compared}
    assert {name: listed[name] for name in compared} == {
        name: found.get("License-Expression") or found.get("License") for name, found in licences.items()
    }


def test_the_jars_have_the_versions_of_the_build() -> None:
    pom = ElementTree.parse(ROOT / "jars" / "pom.xml").getroot()
    versions = {name: version for name, version, _, _ in rows(4)}
    aeron = pom.findtext(".//{http://maven.apache.org/POM/4.0.0}aeron.version")
    own = dict.fromkeys(("aeron-spark-helper", "aeron-spark-jvm"), "that of the wheel")
    assert versions == {"aeron-all": aeron, **own}
