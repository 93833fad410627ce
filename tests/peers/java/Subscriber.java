import io.aeron.Aeron;
import io.aeron.FragmentAssembler;
import io.aeron.Subscription;

import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Receives messages with plain Aeron, without a class of aeron-spark, and writes them to a file: for each a length
 * (32 bits, little-endian) and its bytes.
 *
 * <p>Arguments: AERON_DIR CHANNEL STREAM_ID COUNT FILE. It prints "subscribed" when publishers can connect, and ends
 * after COUNT messages, or with an error after {@link #TIMEOUT_NS} without them.
 */
final class Subscriber
{
    private static final long TIMEOUT_NS = TimeUnit.SECONDS.toNanos(100);
    private static final int FRAGMENT_LIMIT = 10;

    private Subscriber()
    {
    }

    public static void main(final String[] args) throws IOException, InterruptedException, TimeoutException
    {
        final Aeron.Context context = new Aeron.Context().aeronDirectoryName(args[0]);
        final int count = Integer.parseInt(args[3]);
        try (Aeron aeron = Aeron.connect(context);
            Subscription subscription = aeron.addSubscription(args[1], Integer.parseInt(args[2])))
        {
            System.out.println("subscribed");
            write(receive(subscription, count), Path.of(args[4]));
        }
    }

    private static List<byte[]> receive(final Subscription subscription, final int count)
        throws InterruptedException, TimeoutException
    {
        final List<byte[]> messages = new ArrayList<>();
        final FragmentAssembler assembler = new FragmentAssembler((buffer, offset, length, header) ->
        {
            final byte[] message = new byte[length];
            buffer.getBytes(offset, message);
            messages.add(message);
        });
        final long deadline = System.nanoTime() + TIMEOUT_NS;
        while (messages.size() < count)
        {
            if (subscription.poll(assembler, FRAGMENT_LIMIT) > 0)
            {
                continue;
            }
            if (System.nanoTime() - deadline > 0)
            {
                throw new TimeoutException(messages.size() + " of " + count + " messages arrived");
            }
            Thread.sleep(1);
        }
        return messages;
    }

    private static void write(final List<byte[]> messages, final Path file) throws IOException
    {
        final ByteBuffer length = ByteBuffer.allocate(Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        try (DataOutputStream output = new DataOutputStream(Files.newOutputStream(file)))
        {
            for (final byte[] message : messages)
            {
                output.write(length.putInt(0, message.length).array());
                output.write(message);
            }
        }
    }
}
