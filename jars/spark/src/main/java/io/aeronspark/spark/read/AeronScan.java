package io.aeronspark.spark.read;

import io.aeronspark.spark.archive.ArchiveAddress;
import io.aeronspark.spark.archive.ArchiveLog;
import io.aeronspark.spark.archive.Archives;
import io.aeronspark.spark.archive.Hosts;
import io.aeronspark.spark.archive.StreamAddress;
import io.aeronspark.spark.option.ReadOptions;
import io.aeronspark.spark.plan.FilterBounds;
import io.aeronspark.spark.plan.Message;
import io.aeronspark.spark.plan.Partitions;
import io.aeronspark.spark.plan.QueryPlanner;
import io.aeronspark.spark.plan.Range;
import java.util.List;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The read of one query. Its ranges are planned once, at the first question of Spark for statistics or partitions, so
 * that a query that is executed again reads the same rows.
 */
final class AeronScan implements Scan, Batch, SupportsReportStatistics
{
    private static final Logger LOG = LoggerFactory.getLogger(AeronScan.class);

    /** Setting of Spark with the Python that can start this machine's node. */
    private static final String PYTHON = "spark.aeron.python";

    private final ReadOptions options;
    private final StructType schema;
    private final FilterBounds filters;
    private Plan plan;

    private record Plan(StreamAddress address, List<Range> ranges)
    {
    }

    AeronScan(final ReadOptions options, final StructType schema, final FilterBounds filters)
    {
        this.options = options;
        this.schema = schema;
        this.filters = filters;
    }

    @Override
    public StructType readSchema()
    {
        return schema;
    }

    @Override
    public String description()
    {
        return AeronProvider.NAME + " " + options.route().label();
    }

    @Override
    public Batch toBatch()
    {
        return this;
    }

    @Override
    public ColumnarSupportMode columnarSupportMode()
    {
        return ColumnarSupportMode.SUPPORTED;
    }

    /** Bytes of the log; the number of rows is unknown. */
    @Override
    public Statistics estimateStatistics()
    {
        final long bytes = plan().ranges.stream().mapToLong(Range::length).sum();
        return new Statistics()
        {
            @Override
            public OptionalLong sizeInBytes()
            {
                return OptionalLong.of(bytes);
            }

            @Override
            public OptionalLong numRows()
            {
                return OptionalLong.empty();
            }
        };
    }

    @Override
    public InputPartition[] planInputPartitions()
    {
        final Plan found = plan();
        final int minPartitions = options.minPartitions() == null ? 0 : options.minPartitions();
        return Partitions
            .bySize(found.ranges, minPartitions)
            .stream()
            .map((ranges) -> new RangePartition(found.address, ranges, locations(found.address, ranges)))
            .toArray(InputPartition[]::new);
    }

    @Override
    public PartitionReaderFactory createReaderFactory()
    {
        return new ReaderFactory(
            schema,
            options.timestampFrom(),
            "raw".equals(options.payload()),
            options.failOnDataLoss(),
            Hosts.identity());
    }

    @Override
    public CustomMetric[] supportedCustomMetrics()
    {
        return ReadMetrics.supported();
    }

    private synchronized Plan plan()
    {
        if (plan == null)
        {
            final Runnable noTask = () ->
            {
            };
            final String python = SparkEnv.get().conf().get(PYTHON, null);
            final StreamAddress address = Archives.of(options, python, noTask);
            try (ArchiveLog log = new ArchiveLog(address, noTask))
            {
                final QueryPlanner planner =
                    new QueryPlanner(options, log, AeronScan::nowNs, (finding) -> LOG.warn(finding.sentence()));
                final List<Range> ranges = planner.whole(filters);
                if (!"raw".equals(options.payload()))
                {
                    refuseFramed(planner.firstMessage());
                }
                plan = new Plan(address, ranges);
            }
        }
        return plan;
    }

    private static long nowNs()
    {
        return TimeUnit.MILLISECONDS.toNanos(System.currentTimeMillis());
    }

    private static void refuseFramed(final Message first)
    {
        if (first != null && first.isFramed())
        {
            throw Refusals.payload(first.isArrow() ? "arrow" : "framed");
        }
    }

    /** Hosts with the archives of all ranges. */
    private static String[] locations(final StreamAddress address, final List<Range> ranges)
    {
        return address
            .archives()
            .stream()
            .filter((archive) -> ranges.stream().anyMatch((range) -> range.archive().equals(archive.name())))
            .map(ArchiveAddress::host)
            .filter((host) -> !host.isEmpty())
            .distinct()
            .toArray(String[]::new);
    }
}
