package io.aeronspark.checksum;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.Method;
import java.util.zip.CRC32;

/** CRC-32 of memory at an address, as zlib computes it, continued from another: the processor's own instructions do it. */
public final class Crc32
{
    private static final MethodHandle UPDATE = update();

    private Crc32()
    {
    }

    /**
     * Continue a checksum.
     *
     * @param crc     of what comes before; 0 where nothing does.
     * @param address of the first byte.
     * @param length  in bytes.
     */
    public static int update(final int crc, final long address, final int length)
    {
        try
        {
            return (int)UPDATE.invokeExact(crc, address, 0, length);
        }
        catch (final Throwable impossible)
        {
            throw new IllegalStateException(impossible);
        }
    }

    private static MethodHandle update()
    {
        try
        {
            final Method method =
                CRC32.class.getDeclaredMethod("updateByteBuffer0", int.class, long.class, int.class, int.class);
            method.setAccessible(true);
            return MethodHandles.lookup().unreflect(method);
        }
        catch (final ReflectiveOperationException absent)
        {
            throw new IllegalStateException(absent);
        }
    }
}
