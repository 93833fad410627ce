"""Network namespaces for the tests of this folder; a test fails if it leaves a namespace."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.net import namespaces
from tests.net.namespaces import Site
from tests.net.programs import Program, Programs, await_received


@pytest.fixture(scope="session")
def namespaces_work() -> None:
    """Skip on a machine without namespaces; in CI, fail instead, because CI must run these tests."""
    reason = namespaces.why_not()
    if not reason:
        namespaces.sweep()
    elif os.environ.get("CI", "").lower() not in ("", "0", "false"):
        pytest.fail(f"CI must run the tests in network namespaces: {reason}")
    else:
        pytest.skip(f"no network namespaces: {reason}")


@pytest.fixture(autouse=True)
def check_namespaces_are_removed(namespaces_work: None) -> Iterator[None]:
    before = namespaces.remains(os.getpid())
    yield
    remaining = set(namespaces.remains(os.getpid())) - set(before)
    for name in remaining:
        namespaces.ip("netns", "delete", name)
    assert not remaining, f"this test did not remove its namespaces: {sorted(remaining)}"


@pytest.fixture
def site(namespaces_work: None) -> Iterator[Site]:
    """The namespaces of a server, a router and two clients, removed after the test."""
    created = Site()
    try:
        yield created
    finally:
        created.close()


@pytest.fixture
def programs(site: Site, tmp_path: Path, run_name: str) -> Iterator[Programs]:
    """Programs in these namespaces, ended after the test."""
    running = Programs(site, tmp_path, run_name)
    try:
        yield running
    finally:
        running.close()


@dataclass(frozen=True)
class Silence:
    """A connection without messages since a time of ``time.monotonic``."""

    server: Program
    client: Program
    tag: str
    since: float


@pytest.fixture(scope="session")
def silence(namespaces_work: None, tmp_path_factory: pytest.TempPathFactory, run_name: str) -> Iterator[Silence]:
    site = Site()
    try:
        running = Programs(site, tmp_path_factory.mktemp("silence"), run_name)
        try:
            server, client = running.pair("quiet")
            client.request("connect")
            client.request("send", count=100)
            await_received(server, "quiet", 100)
            server.request("send", tag="quiet", count=100)
            await_received(client, "quiet", 100)
            yield Silence(server, client, "quiet", time.monotonic())
        finally:
            running.close()
    finally:
        site.close()


@pytest.fixture(scope="session", autouse=True)
def silence_starts_early(request: pytest.FixtureRequest) -> None:
    """Start the minute of silence before the other tests."""
    if any("silence" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("silence")
