package io.aeronspark.spark.archive;

import io.aeronspark.spark.error.SetupError;
import java.lang.reflect.Method;

/**
 * Opens the packages of the JDK that Agrona and the checksums need. Spark starts its JVM with {@code java.lang} opened,
 * which is enough to open the others.
 */
public final class OpenPackages
{
    private static final String[] PACKAGES = {"jdk.internal.misc", "java.util.zip", "sun.nio.ch"};

    private OpenPackages()
    {
    }

    /** Open the packages, in each JVM before the first use of Aeron. */
    public static void ensure()
    {
        final Module base = Object.class.getModule();
        for (final String name : PACKAGES)
        {
            if (!base.isOpen(name, OpenPackages.class.getModule()))
            {
                open(base, name);
            }
        }
    }

    private static void open(final Module base, final String name)
    {
        try
        {
            final Method open = Module.class.getDeclaredMethod("implAddOpensToAllUnnamed", String.class);
            open.setAccessible(true);
            open.invoke(base, name);
        }
        catch (final ReflectiveOperationException | RuntimeException ex)
        {
            throw new SetupError(
                "Aeron needs the package " + name + " of the JDK, which this JVM does not open",
                "Add --add-opens=java.base/" + name + "=ALL-UNNAMED to spark.driver.extraJavaOptions and " +
                "spark.executor.extraJavaOptions.",
                ex);
        }
    }
}
