"""Tests of a stream's view: a commit changes the states of its partitions, and of no others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.streams.simulated_store import Site


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site(partitions=3)
    yield site
    site.close()


def check_view(site: Site) -> None:
    """Compare each state of the view with the ledger and the recordings."""
    ledger, recordings = site.stream._ledger, site.stream._recordings
    for state, partition in zip(site.stream.states(), recordings.partitions, strict=True):
        index = state.partition
        assert (state.start, state.end) == (ledger.starts[index], ledger.ends[index])
        assert state.epochs == ledger.epochs(index)
        assert (state.shape, state.session_id) == (partition.shape, partition.session_id)
        assert state.recording == ledger.recordings[index]


def test_a_commit_changes_the_states_of_its_partitions_only(site: Site) -> None:
    site.commit({0: [10], 1: [10], 2: [10]})
    before = site.stream.states()
    site.commit({1: [10]})
    after = site.stream.states()
    assert [now == then for now, then in zip(after, before, strict=True)] == [True, False, True]
    assert after[1].end > before[1].end
    check_view(site)


def test_the_first_commit_after_a_restart_begins_an_epoch_of_all_partitions(site: Site) -> None:
    site.commit({0: [10], 1: [10]})
    site.kill()
    site.open()
    before = site.stream.states()
    site.commit({2: [10]})
    assert all(now.epochs != then.epochs for now, then in zip(site.stream.states(), before, strict=True))
    check_view(site)


def test_a_closed_publication_and_a_purge_change_the_view(site: Site) -> None:
    site.commit({0: [10], 1: [10]})
    assert site.stream.states()[0].session_id
    site.stream.release_slots()
    site.commit({1: [10]})
    assert site.stream.states()[0].session_id == 0
    check_view(site)
    site.stream.purge(partition=0)
    check_view(site)
    site.tick()  # the partition without rows moves to another recording
    site.commit({2: [10]})
    check_view(site)
