package io.aeronspark.sbe;

import java.nio.ByteOrder;
import org.agrona.UnsafeApi;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Memory outside the heap, of the caller. An {@link UnsafeBuffer} may also be an array, which the compiler has to
 * expect at each access: loops over it take longer. Accesses are checked if those of UnsafeBuffer are.
 */
final class Memory
{
    private static final boolean IS_CHECKED = UnsafeBuffer.SHOULD_BOUNDS_CHECK;
    private static final boolean IS_BIG_ENDIAN = ByteOrder.nativeOrder() == ByteOrder.BIG_ENDIAN;

    private long address;
    private int length;

    void wrap(final long newAddress, final int newLength)
    {
        address = newAddress;
        length = newLength;
    }

    private void check(final int index, final int bytes)
    {
        if (IS_CHECKED && (index < 0 || bytes < 0 || index > length - bytes))
        {
            throw new IndexOutOfBoundsException(bytes + " bytes at " + index + " of " + length);
        }
    }

    byte getByte(final int index)
    {
        check(index, 1);
        return UnsafeApi.getByte(address + index);
    }

    short getShort(final int index, final boolean isBigEndian)
    {
        check(index, 2);
        final short bits = UnsafeApi.getShort(address + index);
        return isBigEndian == IS_BIG_ENDIAN ? bits : Short.reverseBytes(bits);
    }

    int getInt(final int index, final boolean isBigEndian)
    {
        check(index, 4);
        final int bits = UnsafeApi.getInt(address + index);
        return isBigEndian == IS_BIG_ENDIAN ? bits : Integer.reverseBytes(bits);
    }

    long getLong(final int index, final boolean isBigEndian)
    {
        check(index, 8);
        final long bits = UnsafeApi.getLong(address + index);
        return isBigEndian == IS_BIG_ENDIAN ? bits : Long.reverseBytes(bits);
    }

    /** An int32 in the machine's byte order, as Arrow has it. */
    int getInt(final int index)
    {
        return getInt(index, IS_BIG_ENDIAN);
    }

    void putByte(final int index, final byte value)
    {
        check(index, 1);
        UnsafeApi.putByte(address + index, value);
    }

    void putShort(final int index, final short value)
    {
        check(index, 2);
        UnsafeApi.putShort(address + index, value);
    }

    void putInt(final int index, final int value)
    {
        check(index, 4);
        UnsafeApi.putInt(address + index, value);
    }

    void putLong(final int index, final long value)
    {
        check(index, 8);
        UnsafeApi.putLong(address + index, value);
    }

    /** Write eight bytes in the order that they have in a word of {@link #getLong} with little-endian order. */
    void putLittleEndian(final int index, final long word)
    {
        putLong(index, IS_BIG_ENDIAN ? Long.reverseBytes(word) : word);
    }

    void putDouble(final int index, final double value)
    {
        putLong(index, Double.doubleToRawLongBits(value));
    }

    void putBytes(final int index, final byte[] bytes)
    {
        check(index, bytes.length);
        for (int at = 0; at < bytes.length; at++)
        {
            UnsafeApi.putByte(address + index + at, bytes[at]);
        }
    }

    byte[] getBytes(final int index, final int count)
    {
        check(index, count);
        final byte[] bytes = new byte[count];
        for (int at = 0; at < count; at++)
        {
            bytes[at] = UnsafeApi.getByte(address + index + at);
        }
        return bytes;
    }

    void copyTo(final int index, final Memory other, final int otherIndex, final int count)
    {
        check(index, count);
        other.check(otherIndex, count);
        UnsafeApi.copyMemory(address + index, other.address + otherIndex, count);
    }

    void clear(final int index, final int count)
    {
        check(index, count);
        UnsafeApi.setMemory(address + index, count, (byte)0);
    }
}
