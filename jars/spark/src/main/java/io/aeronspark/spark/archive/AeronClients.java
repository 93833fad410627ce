package io.aeronspark.spark.archive;

import io.aeronspark.client.DaemonThreadFactory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * The Aeron clients of this JVM, one for each directory of a media driver. Each use has a lease; a client is closed one
 * minute after its last lease, and replaced if its driver was.
 * <p>
 * Thread-safe.
 */
public final class AeronClients
{
    /** A query often follows another one, and a new client costs some milliseconds and a start of threads. */
    private static final long UNUSED_NS = TimeUnit.MINUTES.toNanos(1);

    private static final Map<String, AeronClient> CLIENTS = new HashMap<>();
    private static ScheduledExecutorService closer;

    private AeronClients()
    {
    }

    /** A use of a client until {@link #close}. */
    static final class Lease implements AutoCloseable
    {
        private final AeronClient client;
        private boolean isEnded;

        private Lease(final AeronClient client)
        {
            this.client = client;
        }

        AeronClient client()
        {
            return client;
        }

        @Override
        public void close()
        {
            synchronized (CLIENTS)
            {
                if (isEnded)
                {
                    return;
                }
                isEnded = true;
                client.leases--;
                client.unusedSinceNs = System.nanoTime();
                closer.schedule(() -> closeUnused(client), UNUSED_NS, TimeUnit.NANOSECONDS);
            }
        }
    }

    /** Return a lease of the client of a driver. */
    static Lease lease(final String aeronDir)
    {
        synchronized (CLIENTS)
        {
            if (closer == null)
            {
                closer = Executors.newSingleThreadScheduledExecutor(new DaemonThreadFactory());
                Runtime.getRuntime().addShutdownHook(new Thread(AeronClients::closeAll));
            }
            AeronClient client = CLIENTS.get(aeronDir);
            if (client != null && client.isClosed())
            {
                client.close();
                client = null;
            }
            if (client == null)
            {
                client = new AeronClient(aeronDir);
                CLIENTS.put(aeronDir, client);
            }
            client.leases++;
            return new Lease(client);
        }
    }

    private static void closeUnused(final AeronClient client)
    {
        synchronized (CLIENTS)
        {
            final boolean isUnused = client.leases == 0 && System.nanoTime() - client.unusedSinceNs >= UNUSED_NS;
            if (isUnused && CLIENTS.remove(client.aeronDir(), client))
            {
                client.close();
            }
        }
    }

    /** Close all clients, so that their drivers free their resources at once. Tasks have ended, or end with the JVM. */
    private static void closeAll()
    {
        final List<AeronClient> clients;
        synchronized (CLIENTS)
        {
            clients = new ArrayList<>(CLIENTS.values());
            CLIENTS.clear();
        }
        clients.forEach(AeronClient::close);
        clients.forEach((client) -> client.commands().awaitEnd());
    }
}
