"""Counters, errors and losses of a running driver, read from its files."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import time
from contextlib import closing
from pathlib import Path

import pytest

from aeron_spark import node
from aeron_spark.aeron import archive_catalog, counters
from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.recording import FRAME_HEADER_LENGTH
from aeron_spark.errors import TransportError
from aeron_spark.node import NodeHandle, archive_repair, state_files
from aeron_spark.node.settings import RECEIVE_BUFFER, granted_buffer, receive_window
from aeron_spark.waiting import wait_for
from tests import failures
from tests.ports import free_ports


def test_the_package_reads_process_and_counters_of_a_driver_from_its_files(node_of_256k: NodeHandle) -> None:
    aeron_dir = node_of_256k.aeron_dir
    found = counters.read_driver(aeron_dir)
    assert (found.pid, found.cnc_version) == (node_of_256k.pid, "0.2.0")
    assert found.alive
    driver = state_files.driver_liveness(Path(aeron_dir))
    assert (driver.pid, driver.started) == (found.pid, found.started)
    labels = [counter.label for counter in counters.read_counters(aeron_dir)]
    assert "Bytes sent" in labels[0]
    assert any(f"archiveId={node_of_256k.archive_id}" in label for label in labels)


def test_the_offsets_in_aerons_files_are_those_of_aerons_classes() -> None:
    ring = jclass("org.agrona.concurrent.ringbuffer.RingBufferDescriptor")
    assert int(ring.TRAILER_LENGTH) == counters.RING_TRAILER_LENGTH
    assert int(ring.CONSUMER_HEARTBEAT_OFFSET) == counters.RING_HEARTBEAT_OFFSET
    file = jclass("io.aeron.CncFileDescriptor")
    assert int(file.META_DATA_LENGTH) == counters.CNC_META_LENGTH
    assert int(file.ERROR_LOG_BUFFER_LENGTH_FIELD_OFFSET) == 20
    assert int(file.PID_FIELD_OFFSET) + 8 == counters.CNC_HEADER.size
    reader = jclass("org.agrona.concurrent.status.CountersReader")
    assert (int(reader.METADATA_LENGTH), int(reader.COUNTER_LENGTH)) == (counters.META_LENGTH, counters.COUNTER_LENGTH)
    assert (int(reader.TYPE_ID_OFFSET), int(reader.KEY_OFFSET)) == (counters.TYPE_ID_OFFSET, counters.KEY_OFFSET)
    assert (int(reader.LABEL_OFFSET), int(reader.OWNER_ID_OFFSET)) == (counters.LABEL_OFFSET, counters.VALUE.size - 8)
    assert int(jclass("io.aeron.driver.status.StreamCounter").CHANNEL_OFFSET) == counters.STREAM_KEY.size
    errors = jclass("org.agrona.concurrent.errors.DistinctErrorLog")
    assert int(errors.ENCODED_ERROR_OFFSET) == counters.ERROR.size
    assert int(errors.RECORD_ALIGNMENT) == counters.ERROR_ALIGNMENT
    mark_file = jclass("io.aeron.archive.codecs.mark.MarkFileHeaderDecoder")
    assert 8 + int(mark_file.pidEncodingOffset()) + 8 == state_files.MARK_HEADER.size
    assert struct.calcsize("<8xi4xq") == 8 + int(mark_file.startTimestampEncodingOffset())
    header = jclass("io.aeron.archive.codecs.CatalogHeaderDecoder")
    assert int(header.BLOCK_LENGTH) == archive_catalog.CATALOG_HEADER_LENGTH
    assert int(header.alignmentEncodingOffset()) + 4 == archive_catalog.CATALOG_HEADER.size
    assert int(jclass("io.aeron.archive.ArchiveMarkFile").MAJOR_VERSION) == archive_catalog.CATALOG_MAJOR_VERSION
    entry = jclass("io.aeron.archive.codecs.RecordingDescriptorHeaderDecoder")
    assert int(entry.BLOCK_LENGTH) == archive_catalog.ENTRY_HEADER_LENGTH
    assert [
        int(offset_of())
        for offset_of in (entry.lengthEncodingOffset, entry.stateEncodingOffset, entry.checksumEncodingOffset)
    ] == [0, 4, 8]
    assert int(jclass("io.aeron.archive.codecs.RecordingState").VALID.value()) == archive_catalog.VALID
    descriptor = jclass("io.aeron.archive.codecs.RecordingDescriptorDecoder")
    assert int(descriptor.recordingIdEncodingOffset()) == archive_catalog.RECORDING_ID_OFFSET
    assert int(descriptor.streamIdEncodingOffset()) == archive_catalog.STREAM_ID_OFFSET
    assert int(descriptor.BLOCK_LENGTH) == archive_catalog.NUMBERS.size
    assert int(descriptor.stopTimestampEncodingOffset()) == archive_catalog.STOP_TIMESTAMP_OFFSET
    assert int(descriptor.startPositionEncodingOffset()) == archive_catalog.STOP_POSITION_OFFSET - 8
    assert int(descriptor.stopPositionEncodingOffset()) == archive_catalog.STOP_POSITION_OFFSET
    assert int(descriptor.segmentFileLengthEncodingOffset()) == 60
    assert int(descriptor.termBufferLengthEncodingOffset()) + 4 == archive_repair.DESCRIPTOR.size
    frame = jclass("io.aeron.protocol.DataHeaderFlyweight")
    assert int(frame.TYPE_FIELD_OFFSET) == 6
    assert int(frame.SESSION_ID_FIELD_OFFSET) + 4 == archive_repair.FRAME.size
    assert int(frame.HEADER_LENGTH) == FRAME_HEADER_LENGTH


def test_backlog_is_the_bytes_that_a_subscriber_has_not_consumed(node_of_256k: NodeHandle) -> None:
    client = AeronClient(node_of_256k.aeron_dir)
    subscription = client.subscription("aeron:ipc", 1001)
    publication = client.exclusive_publication("aeron:ipc", 1001)
    value = jclass("org.agrona.concurrent.UnsafeBuffer")(jclass("java.nio.ByteBuffer").allocateDirect(100))
    wait_for(lambda: int(publication.offer(value)) == 160, 20.0, "the driver to have room for a message")
    (found,) = [stream for stream in counters.read_backlog(node_of_256k.aeron_dir) if stream.stream_id == 1001]
    client.close()
    assert subscription.isClosed()
    assert found.channel == "aeron:ipc"
    assert found.session_id == int(publication.sessionId())
    assert found.publisher_limit is not None
    assert [(each.position, each.behind) for each in found.subscribers] == [(0, found.behind)]
    assert found.behind in (0, 160)  # the publisher's position is sampled by the conductor
    assert (found.sender_position, found.receiver_position) == (None, None)


def test_errors_can_be_read_after_the_driver_has_ended(own_dir: Path) -> None:
    with node.ensure(own_dir) as handle:
        assert counters.read_errors(str(own_dir)) == ()
        assert counters.read_losses(str(own_dir)) == ()  # without a file, which the first loss makes
        client = AeronClient(str(own_dir))
        with pytest.raises(TransportError):
            client.subscription("aeron:udp?endpoint=no.such.host.invalid:1", 5)
        client.close()
        (error,) = counters.read_errors(str(own_dir))
        assert error.observations == 1
        assert "no.such.host.invalid" in error.text
        states = "\n".join(failures.driver_states(own_dir.parent, own_dir.name, long_cycle_ns=0))
        assert f"{own_dir}: process {handle.pid}, last heartbeat" in states
        assert "archive-conductor max cycle time" in states
        assert re.search(r"^    1 times: .*no\.such\.host\.invalid", states, re.MULTILINE)
        os.kill(handle.pid, signal.SIGKILL)
    assert counters.read_errors(str(own_dir)) == (error,)


def test_losses_are_reported_by_stream(own_dir: Path) -> None:
    lossy = {
        "aeron.ReceiveChannelEndpoint.supplier": "io.aeron.driver.ext.DebugReceiveChannelEndpointSupplier",
        "aeron.debug.receive.data.loss.rate": "0.2",
        "aeron.debug.receive.data.loss.seed": "7",
    }
    with node.ensure(own_dir, archive=False, properties=lossy):
        client = AeronClient(str(own_dir))
        subscription = client.subscription("aeron:udp?endpoint=localhost:0", 9)
        while (channel := subscription.tryResolveChannelEndpointPort()) is None:
            pass
        publication = client.exclusive_publication(str(channel), 9)
        value = jclass("org.agrona.concurrent.UnsafeBuffer")(jclass("java.nio.ByteBuffer").allocateDirect(1000))
        sent = 0
        while sent < 80:  # within the receiver's initial window, before the first poll
            sent += int(publication.offer(value)) > 0
        deadline = time.monotonic() + 30
        while not (losses := counters.read_losses(str(own_dir))):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        client.close()
    (loss,) = losses
    assert (loss.stream_id, loss.session_id) == (9, int(publication.sessionId()))
    assert loss.bytes >= 1000
    assert loss.observations > 0
    assert loss.channel.startswith("aeron:udp?endpoint=localhost:")


def test_a_receivers_window_is_a_third_of_the_buffer_that_the_system_grants(node_of_256k: NodeHandle) -> None:
    window = receive_window(granted_buffer(socket.SO_RCVBUF, RECEIVE_BUFFER))
    own_dir = Path(node_of_256k.aeron_dir)
    with closing(AeronClient(str(own_dir))) as client:
        port, _ = free_ports()
        channel = f"aeron:udp?endpoint=127.0.0.1:{port}|term-length=4m"
        subscription = client.subscription(channel, 7)
        publication = client.exclusive_publication(channel, 7)
        message = jclass("org.agrona.concurrent.UnsafeBuffer")(jclass("java.nio.ByteBuffer").allocateDirect(1_024))
        wait_for(publication.isConnected, 20.0, "the subscriber")
        while (
            publication.position() < 1.5 * window
        ):  # the subscriber does not poll; unsent messages wait in the publication's log
            publication.offer(message)
        sender = f"snd-pos: {publication.registrationId()} "
        wait_for(lambda: _value(own_dir, sender) > window - 2_048, 20.0, "the sender to fill the receiver's window")
        time.sleep(0.2)
        assert _value(own_dir, sender) <= window
        subscription.close()


def _value(own_dir: Path, label: str) -> int:
    """Return the value of the only counter whose label begins with ``label``."""
    (found,) = [one.value for one in counters.read_counters(str(own_dir)) if one.label.startswith(label)]
    return found
