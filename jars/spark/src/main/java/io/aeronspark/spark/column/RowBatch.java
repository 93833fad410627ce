package io.aeronspark.spark.column;

import io.aeronspark.reading.RowAssembler;
import io.aeronspark.spark.archive.RowMemory;
import io.aeronspark.spark.option.TimestampFrom;
import io.aeronspark.spark.plan.RecordingKey;
import io.aeronspark.spark.plan.RecordingState;
import io.aeronspark.wire.ChunkLayout;
import java.nio.ByteOrder;
import org.agrona.UnsafeApi;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * The rows of a batch of messages, one each, with the columns that a query uses. Its memory and columns serve all
 * batches of a reader, one after the other. Not thread-safe.
 */
public final class RowBatch
{
    private static final int MAGIC = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN ?
        ChunkLayout.MAGIC : Integer.reverseBytes(ChunkLayout.MAGIC);

    /** The kind of a message's payload in the wire format (docs/wire-format.md). */
    private static final int CONTENT_OFFSET = 5;
    private static final byte ARROW = 2;

    private final RowMemory memory = new RowMemory();
    private final ConstantColumn[] constants;
    private final String[] constantNames;
    private final ColumnarBatch batch;

    /**
     * @param schema of some columns of {@link RawSchema#ALL}, in any order.
     * @param times  location of the publish times, or null.
     */
    public RowBatch(final StructType schema, final TimestampFrom times)
    {
        final StructField[] fields = schema.fields();
        final ColumnVector[] columns = new ColumnVector[fields.length];
        constants = new ConstantColumn[fields.length];
        constantNames = new String[fields.length];
        for (int i = 0; i < fields.length; i++)
        {
            columns[i] = column(fields[i].name(), fields[i].dataType(), times);
            if (columns[i] instanceof ConstantColumn constant)
            {
                constants[i] = constant;
                constantNames[i] = fields[i].name();
            }
        }
        batch = new ColumnarBatch(columns);
    }

    /** Let the next rows be those of a recording. */
    public void of(final RecordingState state)
    {
        for (int i = 0; i < constants.length; i++)
        {
            if (constants[i] != null)
            {
                set(constants[i], constantNames[i], state);
            }
        }
    }

    /** Let an assembler write the next rows into this batch. The rows of the last batch are gone then. */
    public void begin(final RowAssembler assembler)
    {
        memory.begin(assembler);
    }

    /** Return the first rows as a batch of Spark; it is valid until {@link #begin}. */
    public ColumnarBatch rows(final int count)
    {
        batch.setNumRows(count);
        return batch;
    }

    /** Bytes of the values of the first rows. */
    public int valueBytes(final int count)
    {
        return memory.offset(count);
    }

    /** Position of a row. */
    public long position(final int row)
    {
        return memory.position(row);
    }

    /** Return the first of the first rows that begins like a message of the wire format, or -1. */
    public int firstFramed(final int count)
    {
        final long address = memory.valuesAddress();
        int begin = 0;
        for (int row = 0; row < count; row++)
        {
            final int end = memory.offset(row + 1);
            if (end - begin >= ChunkLayout.HEADER_LENGTH && UnsafeApi.getInt(address + begin) == MAGIC)
            {
                return row;
            }
            begin = end;
        }
        return -1;
    }

    /** Whether a row that begins like a message of the wire format is of an Arrow batch. */
    public boolean isArrow(final int row)
    {
        return UnsafeApi.getByte(memory.valuesAddress() + memory.offset(row) + CONTENT_OFFSET) == ARROW;
    }

    private ColumnVector column(final String name, final DataType type, final TimestampFrom times)
    {
        return switch (name)
        {
            case RawSchema.VALUE -> new RawColumn.Values(type, memory);
            case RawSchema.POSITION -> new RawColumn.Positions(type, memory);
            case RawSchema.RESERVED_VALUE -> new RawColumn.ReservedValues(type, memory);
            case RawSchema.TIMESTAMP -> timestamps(type, times);
            default -> new ConstantColumn(type);
        };
    }

    private ColumnVector timestamps(final DataType type, final TimestampFrom times)
    {
        if (times == null)
        {
            return new ConstantColumn(type);
        }
        return switch (times.location())
        {
            case "reserved-ns" -> new RawColumn.ReservedTimes(type, memory, false);
            case "reserved-ms" -> new RawColumn.ReservedTimes(type, memory, true);
            default -> new RawColumn.PayloadTimes(type, memory, times.offset());
        };
    }

    private static void set(final ConstantColumn column, final String name, final RecordingState state)
    {
        switch (name)
        {
            case RawSchema.CHANNEL -> column.set(state.channel());
            case RawSchema.STREAM_ID -> column.set(state.streamId());
            case RawSchema.SESSION_ID -> column.set(state.sessionId());
            case RawSchema.RECORDING_ID -> column.set(RecordingKey.id(state.key()));
            default ->
            {
                // The timestamp stays NULL.
            }
        }
    }
}
