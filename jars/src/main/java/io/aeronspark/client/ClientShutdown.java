package io.aeronspark.client;

import io.aeron.Aeron;
import io.aeron.CncFileDescriptor;
import io.aeron.DriverProxy;
import java.io.File;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.MappedByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import org.agrona.IoUtil;
import org.agrona.concurrent.ringbuffer.ManyToOneRingBuffer;

/**
 * What happens to Aeron's clients when their process ends. At an orderly end they are closed. Spark, though, ends its Python processes
 * with SIGTERM or SIGHUP, which run no Python code, in the middle of anything: nothing can be closed then that a thread may still be
 * reading. So their drivers are told that the clients are gone, which frees everything at once instead of after a time-out, and the signal
 * does the rest.
 */
public final class ClientShutdown
{
    private static final Map<Aeron, DriverProxy> CLIENTS = new LinkedHashMap<>();

    private ClientShutdown()
    {
    }

    /** This client ends with the process, unless {@link #remove} comes first. */
    public static void add(final Aeron client)
    {
        // Kept mapped for good: a signal may come at any time.
        final MappedByteBuffer cnc = IoUtil.mapExistingFile(new File(client.context().aeronDirectoryName(), "cnc.dat"), "cnc");
        final DriverProxy driver = new DriverProxy(
            new ManyToOneRingBuffer(
                CncFileDescriptor.createToDriverBuffer(cnc, CncFileDescriptor.createMetaDataBuffer(cnc))),
            client.clientId());
        synchronized (CLIENTS)
        {
            CLIENTS.put(client, driver);
        }
    }

    /** It is closed by its owner. */
    public static void remove(final Aeron client)
    {
        synchronized (CLIENTS)
        {
            CLIENTS.remove(client);
        }
    }

    /** Close every client, now. */
    public static void closeAll()
    {
        final Aeron[] clients;
        synchronized (CLIENTS)
        {
            clients = CLIENTS.keySet().toArray(new Aeron[0]);
            CLIENTS.clear();
        }
        for (final Aeron client : clients)
        {
            client.close();
        }
    }

    /**
     * Take leave of the drivers when one of these signals comes, and then let the signal end the process.
     * <p>
     * The JVM's own way, its shutdown hooks, would run JPype's as well, which takes its tables from under a thread that still uses them:
     * the process then dies of a segmentation fault, and takes its time to write a report about it.
     *
     * @param names such as TERM and HUP.
     */
    public static void onSignals(final String... names) throws ReflectiveOperationException
    {
        // Named at run time: javac warns of sun.misc.Signal, which has no successor, wherever it is named before.
        final Class<?> signal = Class.forName("sun.misc.Signal");
        final Class<?> handler = Class.forName("sun.misc.SignalHandler");
        final Method handle = signal.getMethod("handle", signal, handler);
        // The public way refuses to raise what nobody handles; the JVM is started with this package open.
        final Method raise = Class.forName("jdk.internal.misc.Signal").getDeclaredMethod("raise0", int.class);
        raise.setAccessible(true);
        final Method number = signal.getMethod("getNumber");
        final Object usual = handler.getField("SIG_DFL").get(null);
        final InvocationHandler end = (proxy, method, arguments) ->
        {
            takeLeave();
            handle.invoke(null, arguments[0], usual);
            raise.invoke(null, number.invoke(arguments[0]));
            return null;
        };
        for (final String name : names)
        {
            final Object ending = Proxy.newProxyInstance(ClientShutdown.class.getClassLoader(), new Class<?>[]{handler}, end);
            handle.invoke(null, signal.getConstructor(String.class).newInstance(name), ending);
        }
    }

    private static void takeLeave()
    {
        synchronized (CLIENTS)
        {
            for (final DriverProxy driver : CLIENTS.values())
            {
                try
                {
                    driver.clientClose();
                }
                catch (final RuntimeException ignore)
                {
                    // The process ends: there is nobody to tell, and the driver notices in its own time.
                }
            }
        }
    }
}
