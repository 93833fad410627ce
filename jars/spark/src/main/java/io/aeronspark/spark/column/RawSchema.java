package io.aeronspark.spark.column;

import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The columns of {@code payload=raw}. */
public final class RawSchema
{
    static final String VALUE = "value";
    static final String CHANNEL = "channel";
    static final String STREAM_ID = "streamId";
    static final String SESSION_ID = "sessionId";
    static final String RECORDING_ID = "recordingId";
    static final String POSITION = "position";
    static final String RESERVED_VALUE = "reservedValue";
    static final String TIMESTAMP = "timestamp";

    /** All columns. */
    public static final StructType ALL = new StructType(new StructField[]{
        DataTypes.createStructField(VALUE, DataTypes.BinaryType, true),
        DataTypes.createStructField(CHANNEL, DataTypes.StringType, true),
        DataTypes.createStructField(STREAM_ID, DataTypes.IntegerType, true),
        DataTypes.createStructField(SESSION_ID, DataTypes.IntegerType, true),
        DataTypes.createStructField(RECORDING_ID, DataTypes.LongType, true),
        DataTypes.createStructField(POSITION, DataTypes.LongType, true),
        DataTypes.createStructField(RESERVED_VALUE, DataTypes.LongType, true),
        DataTypes.createStructField(TIMESTAMP, DataTypes.TimestampType, true)});

    private RawSchema()
    {
    }
}
