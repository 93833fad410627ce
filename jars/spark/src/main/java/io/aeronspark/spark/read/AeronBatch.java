package io.aeronspark.spark.read;

import io.aeronspark.spark.archive.StreamAddress;
import io.aeronspark.spark.option.ReadOptions;
import io.aeronspark.spark.plan.FilterBounds;
import io.aeronspark.spark.plan.QueryPlanner;
import io.aeronspark.spark.plan.Range;
import java.util.List;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;

/**
 * The rows of a batch query. Its ranges are planned once, at the first question of Spark for statistics or partitions,
 * so that a query that is executed again reads the same rows.
 */
final class AeronBatch implements Batch
{
    private final StreamAccess access;
    private final StructType schema;
    private final FilterBounds filters;
    private Plan plan;

    private record Plan(StreamAddress address, List<Range> ranges)
    {
    }

    AeronBatch(final ReadOptions options, final StructType schema, final FilterBounds filters)
    {
        this.access = new StreamAccess(options);
        this.schema = schema;
        this.filters = filters;
    }

    /** Bytes of the log in the ranges. */
    long bytes()
    {
        return plan().ranges.stream().mapToLong(Range::length).sum();
    }

    @Override
    public InputPartition[] planInputPartitions()
    {
        return access.partitions(plan().address, plan().ranges);
    }

    @Override
    public PartitionReaderFactory createReaderFactory()
    {
        return access.readerFactory(schema);
    }

    private synchronized Plan plan()
    {
        if (plan == null)
        {
            plan = access.withLog((log, address) ->
            {
                final QueryPlanner planner =
                    new QueryPlanner(access.options(), log, StreamAccess::nowNs, StreamAccess::warn);
                final List<Range> ranges = planner.whole(filters);
                access.refuseFramed(planner.firstMessage());
                return new Plan(address, ranges);
            });
        }
        return plan;
    }
}
