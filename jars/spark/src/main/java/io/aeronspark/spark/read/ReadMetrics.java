package io.aeronspark.spark.read;

import java.util.function.LongSupplier;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** The metrics of a read, as the SQL tab of Spark's UI shows them. Spark makes them by name, so they are public. */
public final class ReadMetrics
{
    private static final String MESSAGES = "messages";
    private static final String BYTES = "bytes";
    private static final String WAITS = "replayWaits";

    private ReadMetrics()
    {
    }

    /** Messages that the tasks have read. */
    public static final class Messages extends CustomSumMetric
    {
        @Override
        public String name()
        {
            return MESSAGES;
        }

        @Override
        public String description()
        {
            return "messages";
        }
    }

    /** Bytes of their values. */
    public static final class Bytes extends CustomSumMetric
    {
        @Override
        public String name()
        {
            return BYTES;
        }

        @Override
        public String description()
        {
            return "bytes of messages";
        }
    }

    /** Idle turns in which a replay had nothing. */
    public static final class ReplayWaits extends CustomSumMetric
    {
        @Override
        public String name()
        {
            return WAITS;
        }

        @Override
        public String description()
        {
            return "waits for a replay";
        }
    }

    static CustomMetric[] supported()
    {
        return new CustomMetric[]{new Messages(), new Bytes(), new ReplayWaits()};
    }

    static CustomTaskMetric[] values(final long messages, final long bytes, final long waits)
    {
        return new CustomTaskMetric[]{
            value(MESSAGES, () -> messages), value(BYTES, () -> bytes), value(WAITS, () -> waits)};
    }

    private static CustomTaskMetric value(final String name, final LongSupplier value)
    {
        return new CustomTaskMetric()
        {
            @Override
            public String name()
            {
                return name;
            }

            @Override
            public long value()
            {
                return value.getAsLong();
            }
        };
    }
}
