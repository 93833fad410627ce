package io.aeronspark.spark.archive;

import io.aeron.archive.client.ArchiveException;
import io.aeron.archive.codecs.SourceLocation;
import io.aeronspark.spark.channel.AeronUri;
import io.aeronspark.spark.channel.HostPort;
import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.error.TransportError;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.net.SocketException;
import java.net.UnknownHostException;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Requests an archive to record a stream, for a streaming query. The recording continues after the query. */
final class RecordingRequest
{
    private static final Logger LOG = LoggerFactory.getLogger(RecordingRequest.class);

    private final StreamAddress address;
    private final ArchiveSession session;
    private final AeronUri channel;

    RecordingRequest(final StreamAddress address, final ArchiveSession session)
    {
        this.address = address;
        this.session = session;
        this.channel = AeronUri.parse(address.channel());
    }

    /**
     * Start the recording, with a warning that earlier messages are lost.
     *
     * @param record      option of this name.
     * @param query       name of the query, or "".
     * @param wasRecorded whether the stream has a recording.
     * @throws OptionError if {@code record} forbids it, or the archive's host cannot receive the stream.
     */
    void send(final String record, final String query, final boolean wasRecorded)
    {
        if ("never".equals(record))
        {
            throw new OptionError(
                address.label() + " has no recording, and option 'record' is 'never'",
                "Let its publisher record it, or set option 'record' to 'auto', which records it from now on.");
        }
        if (isUnicastElsewhere())
        {
            throw new OptionError(
                "the archive " + session.address().name() + " cannot receive " + address.channel() + ": it is a " +
                "unicast stream to another host",
                "Use the archive of that host (option 'archive'), or let the publisher use multicast or " +
                "multi-destination-cast (control-mode=dynamic), which several hosts can receive.");
        }
        start(query);
        LOG.warn(
            "{} {}; {}, if any, are lost. The archive {} records it from now on, until '{}' ends that{}",
            address.label(),
            wasRecorded ? "was no longer recorded" : "was not recorded",
            wasRecorded ? "messages since its last recording" : "earlier messages",
            session.address().name(),
            stopCommand(),
            isOfNode() && "ipc".equals(channel.media()) ?
                ", or this machine's node stops, because no program and no publisher uses it" : "");
    }

    private void start(final String query)
    {
        final boolean isLocal = channel.isSpy() || "ipc".equals(channel.media());
        final String recorded = RecordingStart.with(address.channel(), query);
        try
        {
            session.ask("recording " + address.channel() + " stream " + address.streamId(), (archive) ->
                archive.startRecording(
                    recorded, address.streamId(), isLocal ? SourceLocation.LOCAL : SourceLocation.REMOTE));
        }
        catch (final TransportError ex)
        {
            final int code = Failures.archiveCode(ex);
            if (code == ArchiveException.STORAGE_SPACE)
            {
                throw new TransportError(ex.what(), "Free space on the archive's disk.", ex);
            }
            if (code != ArchiveException.ACTIVE_SUBSCRIPTION) // the archive records it already
            {
                throw ex;
            }
        }
    }

    private boolean isOfNode()
    {
        return ArchiveAddress.EMBEDDED.equals(session.address().name());
    }

    /** Whether the archive's host cannot receive the stream: unicast reaches only its own host. */
    private boolean isUnicastElsewhere()
    {
        final String endpoint = channel.isSpy() || "ipc".equals(channel.media()) ? null : channel.get("endpoint");
        if (endpoint == null)
        {
            return false;
        }
        final List<InetAddress> found = addresses(HostPort.parse(endpoint).host());
        final List<InetAddress> ofArchive =
            session.address().isLocal() ? List.of() : addresses(session.address().host());
        return !found.isEmpty() && found.stream().noneMatch((one) ->
            one.isMulticastAddress() || one.isLoopbackAddress() || one.isAnyLocalAddress() ||
            (session.address().isLocal() ? isOfThisMachine(one) : ofArchive.contains(one)));
    }

    private static List<InetAddress> addresses(final String host)
    {
        try
        {
            return List.of(InetAddress.getAllByName(host));
        }
        catch (final UnknownHostException ignored)
        {
            return List.of();
        }
    }

    private static boolean isOfThisMachine(final InetAddress address)
    {
        try
        {
            return NetworkInterface.getByInetAddress(address) != null;
        }
        catch (final SocketException ignored)
        {
            return false;
        }
    }

    private String stopCommand()
    {
        return "aeron-spark recordings stop --channel " + quoted(address.channel()) + " --stream-id " +
            address.streamId() +
            (isOfNode() ? "" : " --archive " + quoted(session.address().controlChannel())) +
            " --aeron-dir " + quoted(session.address().aeronDir());
    }

    /** Return a text as one word of a shell. */
    private static String quoted(final String text)
    {
        return text.matches("[\\w@%+=:,./-]+") ? text : "'" + text.replace("'", "'\"'\"'") + "'";
    }
}
