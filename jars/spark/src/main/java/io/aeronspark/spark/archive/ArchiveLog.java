package io.aeronspark.spark.archive;

import io.aeronspark.reading.BoundaryWalk;
import io.aeronspark.reading.RowAssembler;
import io.aeronspark.spark.channel.AeronUri;
import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.error.SetupError;
import io.aeronspark.spark.option.ReadOptions;
import io.aeronspark.spark.plan.Boundary;
import io.aeronspark.spark.plan.BoundaryRule;
import io.aeronspark.spark.plan.BoundaryRule.WalkRange;
import io.aeronspark.spark.plan.BoundaryRule.Walked;
import io.aeronspark.spark.plan.Log;
import io.aeronspark.spark.plan.Message;
import io.aeronspark.spark.plan.RecordingKey;
import io.aeronspark.spark.plan.RecordingState;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The log of a stream in one or more archives, for one thread. It reads the files of this machine's archive, and asks
 * other archives for replays.
 */
public final class ArchiveLog implements Log, AutoCloseable
{
    private static final int MAX_SIMILAR_STREAMS = 5;

    private final StreamAddress address;
    private final AeronUri channel;
    private final Map<String, ArchiveSession> sessions = new LinkedHashMap<>();
    private final List<AeronClients.Lease> leases = new ArrayList<>();
    private final Map<String, Recording> known = new HashMap<>();

    /**
     * @param onTurn is called in each idle turn of a wait, and can end it by an exception.
     */
    public ArchiveLog(final StreamAddress address, final Runnable onTurn)
    {
        OpenPackages.ensure();
        this.address = address;
        channel = AeronUri.parse(address.channel());
        for (final ArchiveAddress archive : address.archives())
        {
            final AeronClients.Lease lease = AeronClients.lease(archive.aeronDir());
            leases.add(lease);
            sessions.put(archive.name(), new ArchiveSession(lease.client(), archive, onTurn));
        }
    }

    @Override
    public void close()
    {
        leases.forEach(AeronClients.Lease::close);
    }

    @Override
    public List<String> archives()
    {
        return List.copyOf(sessions.keySet());
    }

    @Override
    public List<RecordingState> states()
    {
        known.clear();
        final List<RecordingState> states = new ArrayList<>();
        sessions.forEach((name, session) ->
        {
            for (final Recording recording : session.recordings(address.streamId()))
            {
                if (isOfStream(recording.channel()))
                {
                    states.add(state(name, recording, session.end(recording)));
                }
            }
        });
        return states;
    }

    @Override
    public RecordingState find(final String key)
    {
        final String name = RecordingKey.archive(key);
        final ArchiveSession session = sessions.get(name);
        final Recording recording = session.recording(RecordingKey.id(key));
        return recording == null ? null : state(name, recording, session.end(recording));
    }

    @Override
    public void checkRecorded(final List<RecordingState> states)
    {
        if (states.isEmpty() && !isRecorded())
        {
            throw noRecording();
        }
    }

    @Override
    public boolean isRecorded()
    {
        return sessions.values().stream().anyMatch(
            (session) -> session.recordedChannels(address.streamId()).stream().anyMatch(this::isOfStream));
    }

    @Override
    public Object run()
    {
        return sessions.values().stream().map(ArchiveSession::run).toList();
    }

    @Override
    public void startRecording(final ReadOptions options, final boolean wasRecorded)
    {
        new RecordingRequest(address, sessions.get(archives().get(0)))
            .send(options.record(), options.queryName(), wasRecorded);
    }

    @Override
    public Boundary boundary(
        final RecordingState state, final long start, final long limit, final long end, final long maxRows)
    {
        final Recording recording = recording(state.key());
        return BoundaryRule.find(
            (range) -> walk(session(state.key()), recording, range), recording.termLength(), start, limit, end, maxRows);
    }

    @Override
    public byte[] recordedBytes(final RecordingState state, final long position, final int length)
    {
        final ArchiveAddress archive = session(state.key()).address();
        return !archive.hasFiles() ? null :
            new SegmentFiles(archive.archiveDir(), recording(state.key())).read(position, length);
    }

    @Override
    public List<Message> messages(final RecordingState state, final long begin, final long end)
    {
        final List<Message> found = new ArrayList<>();
        final RowAssembler assembler = new RowAssembler(state.initialTermId(), state.termLength());
        final RowMemory memory = new RowMemory();
        memory.begin(assembler);
        try (RecordedRows rows = rows(state, begin, end))
        {
            while (rows.hasMore())
            {
                if (rows.fill(assembler))
                {
                    take(assembler, memory, found);
                    memory.begin(assembler);
                }
            }
        }
        catch (final UnreadableBytesException ex)
        {
            if (ex.error() != null)
            {
                throw ex.error();
            }
        }
        take(assembler, memory, found);
        return found;
    }

    /**
     * Return the messages of {@code [start, end)}, both ends of messages, of a recording that this log has found.
     *
     * @throws UnreadableBytesException if a replay does not begin.
     */
    public RecordedRows rows(final RecordingState state, final long start, final long end)
        throws UnreadableBytesException
    {
        final ArchiveSession session = session(state.key());
        final ArchiveAddress archive = session.address();
        final Recording recording = recording(state.key());
        final String readPath = address.readPath();
        if (!archive.hasFiles() && "files".equals(readPath))
        {
            throw new SetupError(
                "the archive of the driver in " + archive.aeronDir() + " belongs to another program, so the folder of " +
                "its files is unknown",
                "Read it with readPath=replay or auto.");
        }
        if (archive.hasFiles() && !"replay".equals(readPath))
        {
            final SegmentRows files = new SegmentRows(new SegmentFiles(archive.archiveDir(), recording), start, end);
            // If a segment file is missing, the archive's replay has the rest, or reports the cause.
            return new FilesThenReplay(
                files, end, (from) -> new ReplayRows(session, recording, from, end, address.idleTimeoutNs()));
        }
        return new ReplayRows(session, recording, start, end, address.idleTimeoutNs());
    }

    private static void take(final RowAssembler assembler, final RowMemory memory, final List<Message> found)
    {
        for (int row = 0; row < assembler.rows(); row++)
        {
            found.add(new Message(memory.position(row), memory.value(row), memory.reserved(row)));
        }
    }

    private Walked walk(final ArchiveSession session, final Recording recording, final WalkRange range)
    {
        final BoundaryWalk walk = new BoundaryWalk(
            recording.initialTermId(), recording.termLength(), false, range.start(), range.limit(), range.maxRows(),
            range.atLeastOne());
        final ArchiveAddress archive = session.address();
        long start = range.start();
        if (archive.hasFiles())
        {
            start = new SegmentFiles(archive.archiveDir(), recording).walk(walk, range);
        }
        while (!walk.done() && start < range.stop())
        {
            try
            {
                walkReplay(walk, session, recording, start, range.stop());
                break;
            }
            catch (final UnreadableBytesException ex)
            {
                if (ex.error() != null)
                {
                    throw ex.error();
                }
                start = BoundaryRule.afterDamage(ex.position(), recording.termLength(), range.end());
                walk.onDamage(start);
            }
        }
        return new Walked(walk.boundary(), walk.rows(), walk.open());
    }

    private void walkReplay(
        final BoundaryWalk walk,
        final ArchiveSession session,
        final Recording recording,
        final long start,
        final long end) throws UnreadableBytesException
    {
        try (ReplayedRange replayed = new ReplayedRange(session, recording, start, end, address.idleTimeoutNs()))
        {
            while (!walk.done() && replayed.position() < end)
            {
                replayed.poll(walk::walk);
            }
        }
    }

    private RecordingState state(final String archive, final Recording recording, final long end)
    {
        final RecordingState state = recording.state(archive, end);
        known.put(state.key(), recording);
        return state;
    }

    private Recording recording(final String key)
    {
        return known.get(key);
    }

    private ArchiveSession session(final String key)
    {
        return sessions.get(RecordingKey.archive(key));
    }

    private boolean isOfStream(final String recorded)
    {
        return channel.isSameStream(AeronUri.parseForeign(recorded));
    }

    private OptionError noRecording()
    {
        // A wrong port is the most likely mistake, so streams with the same id come first.
        final Set<String> sameId = new LinkedHashSet<>();
        final Set<String> sameChannel = new LinkedHashSet<>();
        for (final ArchiveSession session : sessions.values())
        {
            for (final Recording recording : session.recordings())
            {
                final String name =
                    "stream " + recording.streamId() + " of " + RecordingStart.without(recording.channel());
                if (RecordingStart.isOfServer(recording.channel()))
                {
                    continue;
                }
                if (recording.streamId() == address.streamId())
                {
                    sameId.add(name);
                }
                else if (isOfStream(recording.channel()))
                {
                    sameChannel.add(name);
                }
            }
        }
        sameId.addAll(sameChannel);
        final List<String> similar = List.copyOf(sameId);
        final int shown = Math.min(similar.size(), MAX_SIMILAR_STREAMS);
        final String more = similar.size() > shown ? " and " + (similar.size() - shown) + " more" : "";
        return new OptionError(
            "the archive " + String.join(", ", archives()) + " has no recording of " + address.label() +
            (similar.isEmpty() ? "" : "; it has " + String.join(", ", similar.subList(0, shown)) + more),
            "Correct 'channel' and 'streamId' ('aeron-spark recordings list' shows the recorded streams), or record " +
            "the stream first: 'aeron-spark send --record', or a streaming query with record=auto.");
    }
}
