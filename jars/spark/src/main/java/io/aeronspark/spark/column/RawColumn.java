package io.aeronspark.spark.column;

import io.aeronspark.spark.archive.RowMemory;
import java.nio.ByteOrder;
import org.agrona.UnsafeApi;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column of messages. Each kind has the accessors of its type; Spark calls no others. */
abstract class RawColumn extends ColumnVector
{
    private static final boolean IS_LITTLE_ENDIAN = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
    private static final long NS_PER_US = 1_000;
    private static final long NS_PER_MS = 1_000_000;

    RawColumn(final DataType type)
    {
        super(type);
    }

    /** The bytes of each message. */
    static final class Values extends RawColumn
    {
        private final RowMemory memory;

        Values(final DataType type, final RowMemory memory)
        {
            super(type);
            this.memory = memory;
        }

        @Override
        public byte[] getBinary(final int row)
        {
            return memory.value(row);
        }
    }

    /** The position of each message. */
    static final class Positions extends RawColumn
    {
        private final RowMemory memory;

        Positions(final DataType type, final RowMemory memory)
        {
            super(type);
            this.memory = memory;
        }

        @Override
        public long getLong(final int row)
        {
            return memory.position(row);
        }
    }

    /** The reserved value of each message. */
    static final class ReservedValues extends RawColumn
    {
        private final RowMemory memory;

        ReservedValues(final DataType type, final RowMemory memory)
        {
            super(type);
            this.memory = memory;
        }

        @Override
        public long getLong(final int row)
        {
            return memory.reserved(row);
        }
    }

    /** The publish time of each message in microseconds, from its reserved value. */
    static final class ReservedTimes extends RawColumn
    {
        private final RowMemory memory;
        private final boolean isMilliseconds;

        ReservedTimes(final DataType type, final RowMemory memory, final boolean isMilliseconds)
        {
            super(type);
            this.memory = memory;
            this.isMilliseconds = isMilliseconds;
        }

        @Override
        public long getLong(final int row)
        {
            final long reserved = memory.reserved(row);
            return (isMilliseconds ? reserved * NS_PER_MS : reserved) / NS_PER_US;
        }
    }

    /** The publish time of each message in microseconds, from eight bytes of it; NULL in a message without them. */
    static final class PayloadTimes extends RawColumn
    {
        private final RowMemory memory;
        private final int offset;

        PayloadTimes(final DataType type, final RowMemory memory, final int offset)
        {
            super(type);
            this.memory = memory;
            this.offset = offset;
        }

        @Override
        public boolean hasNull()
        {
            return true;
        }

        @Override
        public boolean isNullAt(final int row)
        {
            return (long)offset + Long.BYTES > memory.offset(row + 1) - memory.offset(row);
        }

        @Override
        public long getLong(final int row)
        {
            final long address = memory.valuesAddress() + memory.offset(row) + offset;
            final long nanoseconds = UnsafeApi.getLong(address);
            return (IS_LITTLE_ENDIAN ? nanoseconds : Long.reverseBytes(nanoseconds)) / NS_PER_US;
        }
    }

    @Override
    public void close()
    {
        // The memory is freed when nothing refers to it: another thread may still read rows.
    }

    @Override
    public boolean hasNull()
    {
        return false;
    }

    @Override
    public int numNulls()
    {
        return hasNull() ? 1 : 0; // Spark only compares it with 0.
    }

    @Override
    public boolean isNullAt(final int row)
    {
        return false;
    }

    @Override
    public boolean getBoolean(final int row)
    {
        throw unsupported();
    }

    @Override
    public byte getByte(final int row)
    {
        throw unsupported();
    }

    @Override
    public short getShort(final int row)
    {
        throw unsupported();
    }

    @Override
    public int getInt(final int row)
    {
        throw unsupported();
    }

    @Override
    public long getLong(final int row)
    {
        throw unsupported();
    }

    @Override
    public float getFloat(final int row)
    {
        throw unsupported();
    }

    @Override
    public double getDouble(final int row)
    {
        throw unsupported();
    }

    @Override
    public ColumnarArray getArray(final int row)
    {
        throw unsupported();
    }

    @Override
    public ColumnarMap getMap(final int row)
    {
        throw unsupported();
    }

    @Override
    public Decimal getDecimal(final int row, final int precision, final int scale)
    {
        throw unsupported();
    }

    @Override
    public UTF8String getUTF8String(final int row)
    {
        throw unsupported();
    }

    @Override
    public byte[] getBinary(final int row)
    {
        throw unsupported();
    }

    @Override
    public ColumnVector getChild(final int ordinal)
    {
        throw unsupported();
    }

    private UnsupportedOperationException unsupported()
    {
        return new UnsupportedOperationException("a column of " + type.simpleString());
    }
}
