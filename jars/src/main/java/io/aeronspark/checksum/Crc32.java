package io.aeronspark.checksum;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.Method;
import java.util.zip.CRC32;

/**
 * CRC-32 of zlib for memory at an address. It calls the JDK's intrinsic method, which uses the processor's instructions
 * and needs no ByteBuffer around the memory. The JVM must be started with
 * {@code --add-opens=java.base/java.util.zip=ALL-UNNAMED}; otherwise this class fails to initialise.
 */
public final class Crc32
{
    private static final MethodHandle UPDATE = findUpdate();

    private Crc32()
    {
    }

    /**
     * Continue a checksum. Any thread may call it.
     *
     * @param crc     checksum of the preceding bytes, 0 if there are none.
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

    private static MethodHandle findUpdate()
    {
        try
        {
            final Method method =
                CRC32.class.getDeclaredMethod("updateByteBuffer0", int.class, long.class, int.class, int.class);
            method.setAccessible(true);
            return MethodHandles.lookup().unreflect(method);
        }
        catch (final ReflectiveOperationException ex)
        {
            throw new IllegalStateException(ex);
        }
    }
}
