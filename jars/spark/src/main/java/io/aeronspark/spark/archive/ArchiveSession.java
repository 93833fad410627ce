package io.aeronspark.spark.archive;

import io.aeron.Aeron;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.client.RecordingDescriptorConsumer;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * A use of an archive by one thread, which waits for the thread of the client. A session that was lost is replaced, once
 * for each request.
 */
final class ArchiveSession
{
    private static final int ALL = Integer.MAX_VALUE;
    private static final Consumer<Object> NONE = (ignored) ->
    {
    };

    private final AeronClient client;
    private final ArchiveAddress address;
    private final Runnable onTurn;

    /**
     * @param onTurn is called in each idle turn of a wait, and can end it by an exception.
     */
    ArchiveSession(final AeronClient client, final ArchiveAddress address, final Runnable onTurn)
    {
        this.client = client;
        this.address = address;
        this.onTurn = onTurn;
    }

    ArchiveAddress address()
    {
        return address;
    }

    AeronClient client()
    {
        return client;
    }

    Runnable onTurn()
    {
        return onTurn;
    }

    /** Return the connected session: a restarted archive has another one. */
    Object run()
    {
        return client.call("connecting to the archive", () -> client.archive(address), NONE, onTurn);
    }

    /** Return the recordings of all streams with this id, ordered by recording id. */
    List<Recording> recordings(final int streamId)
    {
        return ask("listing the archive's recordings", (archive) ->
        {
            final List<Recording> found = new ArrayList<>();
            archive.listRecordingsForUri(0, ALL, "", streamId, into(found));
            return found;
        });
    }

    /** Return all recordings, ordered by recording id. */
    List<Recording> recordings()
    {
        return ask("listing the archive's recordings", (archive) ->
        {
            final List<Recording> found = new ArrayList<>();
            archive.listRecordings(0, ALL, into(found));
            return found;
        });
    }

    /** Return one recording, or null if the archive does not have it. */
    Recording recording(final long recordingId)
    {
        return ask("looking up recording " + recordingId, (archive) ->
        {
            final List<Recording> found = new ArrayList<>(1);
            archive.listRecording(recordingId, into(found));
            return found.isEmpty() ? null : found.get(0);
        });
    }

    /** Return the end of a recording now. */
    long end(final Recording recording)
    {
        return !recording.isActive() ? recording.stopPosition() : ask(
            "requesting the position of recording " + recording.id(),
            (archive) -> archive.getMaxRecordedPosition(recording.id()));
    }

    /** Return the channels on which the archive records this stream id. */
    List<String> recordedChannels(final int streamId)
    {
        return ask("listing the archive's recording subscriptions", (archive) ->
        {
            final List<String> channels = new ArrayList<>();
            archive.listRecordingSubscriptions(
                0, ALL, "", streamId, true, (control, correlation, id, stream, channel) -> channels.add(channel));
            return channels;
        });
    }

    /** Return the result of a request to the archive, or of its repetition in a new session if this one was lost. */
    <T> T ask(final String action, final Function<AeronArchive, T> request)
    {
        return ask(action, (aeron, archive) -> request.apply(archive), NONE);
    }

    /** Return the result of a request; {@code discard} gets it if this thread does not wait for it any more. */
    <T> T ask(
        final String action, final BiFunction<Aeron, AeronArchive, T> request, final Consumer<? super T> discard)
    {
        return client.call(action, () ->
        {
            final ConnectedArchive session = client.archive(address);
            try
            {
                return request.apply(client.aeron(), session.archive());
            }
            catch (final RuntimeException ex)
            {
                if (session.isConnected())
                {
                    throw ex;
                }
                return request.apply(client.aeron(), client.archive(address).archive());
            }
        }, discard, onTurn);
    }

    private static RecordingDescriptorConsumer into(final List<Recording> found)
    {
        return (control, correlation, id, startTimestamp, stopTimestamp, startPosition, stopPosition, initialTermId,
            segmentLength, termLength, mtu, sessionId, streamId, strippedChannel, originalChannel, source) ->
            found.add(new Recording(
                id, startTimestamp, stopTimestamp, startPosition, stopPosition, initialTermId, segmentLength, termLength,
                mtu, sessionId, streamId, originalChannel));
    }
}
