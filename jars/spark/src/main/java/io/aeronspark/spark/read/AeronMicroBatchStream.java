package io.aeronspark.spark.read;

import io.aeronspark.spark.option.BatchLimits;
import io.aeronspark.spark.option.ReadOptions;
import io.aeronspark.spark.plan.QueryOffset;
import io.aeronspark.spark.plan.StreamPlanner;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A stream that a query reads in micro-batches. Only the checkpoint stores the progress. Spark calls it on the query's
 * thread, and plans the partitions of a broadcast side on another one.
 */
final class AeronMicroBatchStream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics
{
    private static final Logger LOG = LoggerFactory.getLogger(AeronMicroBatchStream.class);

    private final StreamAccess access;
    private final StructType schema;
    private final StreamPlanner planner;

    AeronMicroBatchStream(final ReadOptions options, final StructType schema)
    {
        this.access = new StreamAccess(options);
        this.schema = schema;
        this.planner = new StreamPlanner(options, StreamAccess::nowNs, StreamAccess::warn);
        // Spark does not tell a source whether the query has a watermark on the column.
        if (options.timestampFrom() == null && Arrays.asList(schema.fieldNames()).contains("timestamp"))
        {
            LOG.warn(
                "the column timestamp of {} is NULL, because raw messages have no publish time: a watermark on it lets " +
                "no row through. Set option 'timestampFrom' if the messages have one, or take the watermark on another " +
                "column",
                options.route().label());
        }
    }

    @Override
    public synchronized Offset initialOffset()
    {
        return access.withLog((log, address) ->
        {
            access.refuseFramed(planner.firstMessage(log));
            return StreamOffset.of(planner.initial(log));
        });
    }

    /** Return a limit; the options also have its value. */
    @Override
    public ReadLimit getDefaultReadLimit()
    {
        final BatchLimits limits = access.options().limits();
        return ReadLimit.maxBytes(limits.maxBytes());
    }

    /** Return the end of the next batch; {@code start} itself if there is nothing new. */
    @Override
    public synchronized Offset latestOffset(final Offset start, final ReadLimit limit)
    {
        final QueryOffset parsed = StreamOffset.parse(start);
        final QueryOffset end =
            access.withLog((log, address) -> planner.latest(log, parsed, !(limit instanceof ReadAllAvailable)));
        return end == parsed ? start : StreamOffset.of(end);
    }

    @Override
    public Offset latestOffset()
    {
        throw new UnsupportedOperationException("latestOffset(Offset, ReadLimit) is in its place");
    }

    /** Return the ends of the recordings, the stream and the lag, as the other source does; null without recordings. */
    @Override
    public synchronized Offset reportLatestOffset()
    {
        final String report = planner.report();
        return report == null ? null : new StreamOffset(report);
    }

    @Override
    public synchronized Map<String, String> metrics(final Optional<Offset> latestConsumedOffset)
    {
        return planner.metrics();
    }

    @Override
    public synchronized void prepareForTriggerAvailableNow()
    {
        access.withLog((log, address) ->
        {
            planner.prepareAvailableNow(log);
            return null;
        });
    }

    @Override
    public synchronized InputPartition[] planInputPartitions(final Offset start, final Offset end)
    {
        return access.withLog((log, address) -> access.partitions(
            address, planner.between(log, StreamOffset.parse(start), StreamOffset.parse(end))));
    }

    @Override
    public PartitionReaderFactory createReaderFactory()
    {
        return access.readerFactory(schema);
    }

    @Override
    public Offset deserializeOffset(final String json)
    {
        return new StreamOffset(json);
    }

    @Override
    public void commit(final Offset end)
    {
    }

    @Override
    public void stop()
    {
    }

    @Override
    public String toString()
    {
        return AeronProvider.NAME + " " + access.options().route().label();
    }
}
