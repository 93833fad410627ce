package io.aeronspark.spark.column;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;

/** A column with one value in all rows of a range, or NULL. */
final class ConstantColumn extends RawColumn
{
    private long number;
    private UTF8String text;
    private boolean isNull = true;

    ConstantColumn(final DataType type)
    {
        super(type);
    }

    void set(final long value)
    {
        number = value;
        isNull = false;
    }

    void set(final String value)
    {
        text = UTF8String.fromString(value);
        isNull = false;
    }

    @Override
    public boolean hasNull()
    {
        return isNull;
    }

    @Override
    public boolean isNullAt(final int row)
    {
        return isNull;
    }

    @Override
    public int getInt(final int row)
    {
        return (int)number;
    }

    @Override
    public long getLong(final int row)
    {
        return number;
    }

    @Override
    public UTF8String getUTF8String(final int row)
    {
        return text;
    }
}
