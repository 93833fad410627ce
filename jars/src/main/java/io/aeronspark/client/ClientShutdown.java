package io.aeronspark.client;

import io.aeron.Aeron;
import io.aeron.DriverProxy;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Ends the Aeron clients of this process when the process ends.
 * <p>
 * At an orderly end they are closed. Spark, however, ends its Python processes with SIGTERM or SIGHUP, which run no
 * Python code. Closing a client then would unmap memory that another thread may be reading. Therefore the drivers are
 * only told that the clients are gone, so that they free the clients' resources at once and not after a time-out, and
 * then the signal ends the process.
 * <p>
 * Thread-safe.
 */
public final class ClientShutdown
{
    private static final Map<Aeron, DriverProxy> CLIENTS = new LinkedHashMap<>();

    private ClientShutdown()
    {
    }

    /** End {@code client} with the process, unless {@link #remove} is called before. */
    public static void add(final Aeron client)
    {
        final DriverProxy driver = DriverProxies.mapFor(client);
        synchronized (CLIENTS)
        {
            CLIENTS.put(client, driver);
        }
    }

    /** Leave {@code client} to its owner, who closes it. */
    public static void remove(final Aeron client)
    {
        synchronized (CLIENTS)
        {
            CLIENTS.remove(client);
        }
    }

    /** Close all clients. No other thread may be reading from one of them. */
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
     * Tell the drivers that the clients are gone when one of these signals arrives, and then let the signal end the
     * process.
     * <p>
     * A shutdown hook of the JVM cannot do this: JPype's own hook would run too and free tables that other threads
     * still use, so the process would end with a segmentation fault and spend its time on a crash report.
     *
     * @param names of the signals, without SIG, such as TERM and HUP.
     */
    public static void onSignals(final String... names) throws ReflectiveOperationException
    {
        // By reflection: javac warns of each direct use of sun.misc.Signal, and the JDK has no public replacement.
        final Class<?> signal = Class.forName("sun.misc.Signal");
        final Class<?> handler = Class.forName("sun.misc.SignalHandler");
        final Method handle = signal.getMethod("handle", signal, handler);
        // The public method refuses to raise a signal without a handler. The JVM is started with this package opened.
        final Method raise = Class.forName("jdk.internal.misc.Signal").getDeclaredMethod("raise0", int.class);
        raise.setAccessible(true);
        final Method number = signal.getMethod("getNumber");
        final Object defaultHandler = handler.getField("SIG_DFL").get(null);
        final InvocationHandler onSignal = (proxy, method, arguments) ->
        {
            sendClientCloses();
            handle.invoke(null, arguments[0], defaultHandler);
            raise.invoke(null, number.invoke(arguments[0]));
            return null;
        };
        for (final String name : names)
        {
            final Object installed =
                Proxy.newProxyInstance(ClientShutdown.class.getClassLoader(), new Class<?>[]{handler}, onSignal);
            handle.invoke(null, signal.getConstructor(String.class).newInstance(name), installed);
        }
    }

    private static void sendClientCloses()
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
                    // The process ends and cannot report it. The driver notices the missing client after its time-out.
                }
            }
        }
    }
}
