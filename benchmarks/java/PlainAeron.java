import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.FragmentAssembler;
import io.aeron.Image;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.codecs.SourceLocation;
import io.aeron.archive.status.RecordingPos;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Plain Aeron programs, with which the benchmarks compare the connector, or which publish messages for it. Each ends at
 * the end of its standard input.
 *
 * <pre>
 * record    CONTROL CHANNEL STREAM MESSAGES LENGTH   for each line of input, publishes to a recording and prints the seconds
 * recordings CONTROL CHANNEL STREAM MESSAGES LENGTH  for each line of input, publishes to a new recording and prints the seconds
 * subscribe CHANNEL STREAM                           consumes and discards all messages
 * count     CHANNEL STREAM                           for each line of input, a number, prints a line after that many more messages
 * replay    CONTROL STREAM TO STREAM                 for each line of input, replays the stream's last recording and prints the seconds
 * tick      CHANNEL STREAM MILLISECONDS MESSAGES     publishes some messages of 100 bytes in each interval
 * </pre>
 */
public final class PlainAeron
{
    private static final int BLOCK = 4 * 1024 * 1024;
    private static final int FRAGMENTS = 512;

    public static void main(final String[] args) throws Exception
    {
        try (Aeron aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(System.getProperty("aeron.dir"))))
        {
            switch (args[0])
            {
                case "record" -> record(aeron, args[1], args[2], number(args[3]), number(args[4]), number(args[5]));
                case "recordings" -> recordings(
                    aeron, args[1], args[2], number(args[3]), number(args[4]), number(args[5]));
                case "subscribe" -> subscribe(aeron, args[1], number(args[2]));
                case "count" -> count(aeron, args[1], number(args[2]));
                case "replay" -> replay(aeron, args[1], number(args[2]), args[3], number(args[4]));
                case "tick" -> tick(aeron, args[1], number(args[2]), number(args[3]), number(args[4]));
                default -> throw new IllegalArgumentException(args[0]);
            }
        }
    }

    private static void replay(
        final Aeron aeron,
        final String control,
        final int stream,
        final String to,
        final int toStream) throws IOException
    {
        try (AeronArchive archive = connect(aeron, control))
        {
            final long recording = lastRecording(archive, stream);
            final long end = archive.getMaxRecordedPosition(recording);
            final BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            System.out.println("ready");
            while (input.readLine() != null)
            {
                final long begin = System.nanoTime();
                try (Subscription subscription = aeron.addSubscription(to, toStream))
                {
                    final int session = (int)archive.startReplay(recording, 0, end, to, toStream);
                    final IdleStrategy idle = idle();
                    Image image;
                    while (null == (image = subscription.imageBySessionId(session)))
                    {
                        idle.idle();
                    }
                    final FragmentAssembler discard = new FragmentAssembler((buffer, offset, length, header) -> {});
                    while (image.position() < end)
                    {
                        idle.idle(image.poll(discard, FRAGMENTS));
                    }
                }
                System.out.println((System.nanoTime() - begin) / 1e9);
            }
        }
    }

    private static long lastRecording(final AeronArchive archive, final int stream)
    {
        final long[] found = {Aeron.NULL_VALUE};
        archive.listRecordings(0, Integer.MAX_VALUE, (controlSessionId, correlationId, recordingId, startTimestamp,
            stopTimestamp, startPosition, stopPosition, initialTermId, segmentFileLength, termBufferLength,
            mtuLength, sessionId, streamId, strippedChannel, originalChannel, sourceIdentity) ->
            found[0] = streamId == stream ? recordingId : found[0]);
        return found[0];
    }

    private static void record(
        final Aeron aeron,
        final String control,
        final String channel,
        final int stream,
        final int messages,
        final int length) throws IOException
    {
        try (AeronArchive archive = connect(aeron, control);
            ExclusivePublication publication = archive.addRecordedExclusivePublication(channel, stream))
        {
            final int counter = recordingPosition(aeron, archive, publication);
            final UnsafeBuffer message = message(length);
            final BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            System.out.println("ready");
            while (input.readLine() != null)
            {
                System.out.println(publish(aeron, publication, counter, message, messages));
            }
        }
    }

    private static void recordings(
        final Aeron aeron,
        final String control,
        final String channel,
        final int stream,
        final int messages,
        final int length) throws IOException
    {
        try (AeronArchive archive = connect(aeron, control))
        {
            final UnsafeBuffer message = message(length);
            final BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            System.out.println("ready");
            while (input.readLine() != null)
            {
                try (ExclusivePublication publication = archive.addRecordedExclusivePublication(channel, stream))
                {
                    final int counter = recordingPosition(aeron, archive, publication);
                    System.out.println(publish(aeron, publication, counter, message, messages));
                }
            }
        }
    }

    private static AeronArchive connect(final Aeron aeron, final String control)
    {
        return AeronArchive.connect(new AeronArchive.Context().aeron(aeron).controlRequestChannel(control)
            .controlResponseChannel("aeron:ipc?term-length=64k"));
    }

    private static int recordingPosition(
        final Aeron aeron, final AeronArchive archive, final ExclusivePublication publication)
    {
        return await(() -> RecordingPos.findCounterIdBySession(
            aeron.countersReader(), publication.sessionId(), archive.archiveId()));
    }

    private static UnsafeBuffer message(final int length)
    {
        final UnsafeBuffer message = new UnsafeBuffer(ByteBuffer.allocateDirect(length));
        message.setMemory(0, length, (byte)7);
        return message;
    }

    private static double publish(
        final Aeron aeron,
        final ExclusivePublication publication,
        final int counter,
        final UnsafeBuffer message,
        final int messages)
    {
        final long begin = System.nanoTime();
        for (int i = 0; i < messages; i++)
        {
            offer(publication, message);
        }
        final IdleStrategy idle = idle();
        while (aeron.countersReader().getCounterValue(counter) < publication.position())
        {
            idle.idle();
        }
        return (System.nanoTime() - begin) / 1e9;
    }

    private static void subscribe(final Aeron aeron, final String channel, final int stream)
    {
        exitAtEndOfInput();
        final IdleStrategy idle = idle();
        try (Subscription subscription = aeron.addSubscription(channel, stream))
        {
            System.out.println("ready");
            while (true)
            {
                int work = 0;
                for (int i = 0; i < subscription.imageCount(); i++)
                {
                    final Image image = subscription.imageAtIndex(i);
                    work += image.blockPoll((buffer, offset, length, session, term) -> { }, BLOCK);
                }
                idle.idle(work);
            }
        }
    }

    private static void count(final Aeron aeron, final String channel, final int stream) throws IOException
    {
        final IdleStrategy idle = idle();
        final long[] seen = new long[1];
        final FragmentAssembler counter = new FragmentAssembler((buffer, offset, length, header) -> seen[0]++);
        try (Subscription subscription = aeron.addSubscription(channel, stream))
        {
            final BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            System.out.println("ready");
            long expected = 0;
            for (String line = input.readLine(); line != null; line = input.readLine())
            {
                expected += number(line);
                while (seen[0] < expected)
                {
                    idle.idle(subscription.poll(counter, FRAGMENTS));
                }
                System.out.println(seen[0]);
            }
        }
    }

    private static void tick(
        final Aeron aeron, final String channel, final int stream, final int milliseconds, final int messages)
    {
        exitAtEndOfInput();
        final UnsafeBuffer message = new UnsafeBuffer(ByteBuffer.allocateDirect(100));
        try (ExclusivePublication publication = aeron.addExclusivePublication(channel, stream))
        {
            System.out.println("ready");
            while (true)
            {
                for (int i = 0; i < messages; i++)
                {
                    offer(publication, message);
                }
                LockSupport.parkNanos(milliseconds * 1_000_000L);
            }
        }
    }

    private static void offer(final ExclusivePublication publication, final UnsafeBuffer message)
    {
        final IdleStrategy idle = idle();
        long result;
        while ((result = publication.offer(message)) < 0)
        {
            if (result == ExclusivePublication.CLOSED || result == ExclusivePublication.MAX_POSITION_EXCEEDED)
            {
                throw new IllegalStateException("offer returned " + result + ": " + Publication.errorString(result));
            }
            idle.idle();
        }
    }

    private interface Counter
    {
        int find();
    }

    private static int await(final Counter counter)
    {
        final IdleStrategy idle = idle();
        int found;
        while ((found = counter.find()) < 0)
        {
            idle.idle();
        }
        return found;
    }

    private static IdleStrategy idle()
    {
        return new BackoffIdleStrategy(100, 10, 1_000, 100_000);
    }

    private static int number(final String text)
    {
        return Integer.parseInt(text);
    }

    private static void exitAtEndOfInput()
    {
        final Thread end = new Thread(() ->
        {
            try
            {
                while (System.in.read() >= 0)
                {
                    Thread.onSpinWait();
                }
            }
            catch (final IOException ignore)
            {
                // the same as the end of the input
            }
            Runtime.getRuntime().halt(0);
        });
        end.setDaemon(true);
        end.start();
    }
}
