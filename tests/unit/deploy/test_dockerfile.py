"""deploy/Dockerfile: versions, user, ports and commands; tests/cli/test_container.py runs its commands."""

from __future__ import annotations

import re
from fnmatch import fnmatch

import pytest

from tests.programs import ROOT
from tests.unit.deploy.dockerfile import INSTRUCTIONS, PATH, environment, instructions, only, parse
from tests.unit.deploy.test_service_unit import UNIT, parsed

DATA = "/var/lib/aeron-spark"


def test_the_parser_joins_lines_and_refuses_unknown_instructions() -> None:
    found = list(parse("# a comment\nRUN one \\\n    && two\n\nUSER 1:1\n"))
    assert [(one.name, one.text) for one in found] == [("RUN", "one && two"), ("USER", "1:1")]
    with pytest.raises(ValueError, match="unknown instruction"):
        list(parse("ADD https://example.com /"))


def test_the_image_begins_with_a_fixed_version_of_python() -> None:
    assert only("FROM").text == "python:3.12-slim-bookworm"
    assert "latest" not in PATH.read_text()
    assert {one.name for one in parse(PATH.read_text())} == INSTRUCTIONS


def test_the_image_has_java_and_tini() -> None:
    (packages,) = [one.text for one in instructions("RUN") if "apt-get" in one.text]
    assert "install -y --no-install-recommends openjdk-17-jre-headless tini" in packages
    assert packages.endswith("&& rm -rf /var/lib/apt/lists/*")


def test_the_server_does_not_run_as_root() -> None:
    assert only("USER").text == "10001:10001"
    names = [one.name for one in parse(PATH.read_text())]
    assert "RUN" not in names[names.index("USER") :]  # what root does comes before
    (user,) = [one.text for one in instructions("RUN") if "useradd" in one.text]
    assert "--uid 10001" in user
    assert f"--home-dir {DATA}" in user


def test_each_copied_file_exists_in_a_repository_with_a_wheel() -> None:
    """The only copied file is the wheel: its name is that of the distribution, and `make wheel` writes it to dist/."""
    *sources, target = only("COPY").words
    (version,) = re.findall(r"^version = (.+)$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
    for source in sources:
        assert fnmatch(f"dist/aeron_spark-{version}-py3-none-any.whl", source)
    makefile = (ROOT / "Makefile").read_text()
    assert "-m build --wheel" in makefile  # without --outdir it writes to dist/
    assert f"docker build -f deploy/Dockerfile -t aeron-spark:{version} ." in PATH.read_text()
    (install,) = [one.text for one in instructions("RUN") if "pip install" in one.text]
    assert f"$(echo {target}" in install
    assert "[server]" in install


def test_the_image_and_the_unit_use_the_same_folders() -> None:
    unit = dict(pair.split("=", 1) for pair in parsed(UNIT.read_text())["Service"]["Environment"].split())
    assert environment() == unit
    assert only("VOLUME").text == DATA


def test_the_image_has_the_ports_of_a_server_and_its_commands() -> None:
    assert only("EXPOSE").text.split() == ["20121/udp", "20122/udp", "9464/tcp"]
    assert only("STOPSIGNAL").text == "SIGTERM"
    assert only("ENTRYPOINT").words == ["tini", "--", "aeron-spark", "server"]
    assert only("HEALTHCHECK").words == ["aeron-spark", "server", "status", "--ready"]
