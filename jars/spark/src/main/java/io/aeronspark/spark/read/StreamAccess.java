package io.aeronspark.spark.read;

import io.aeronspark.spark.archive.ArchiveAddress;
import io.aeronspark.spark.archive.ArchiveLog;
import io.aeronspark.spark.archive.Archives;
import io.aeronspark.spark.archive.Hosts;
import io.aeronspark.spark.archive.StreamAddress;
import io.aeronspark.spark.option.ReadOptions;
import io.aeronspark.spark.plan.Finding;
import io.aeronspark.spark.plan.Message;
import io.aeronspark.spark.plan.Partitions;
import io.aeronspark.spark.plan.Range;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Opens the log of a query's stream for planning in Spark's driver, and makes what the tasks get. */
record StreamAccess(ReadOptions options)
{
    private static final Logger LOG = LoggerFactory.getLogger(StreamAccess.class);

    /** Setting of Spark with the Python that can start this machine's node. */
    private static final String PYTHON = "spark.aeron.python";

    /** Return the result of an operation on the log, which is open during it; start this machine's node if necessary. */
    <T> T withLog(final BiFunction<ArchiveLog, StreamAddress, T> operation)
    {
        final StreamAddress address =
            Archives.of(options, SparkEnv.get().conf().get(PYTHON, null), StreamAccess::checkInterrupt);
        try (ArchiveLog log = new ArchiveLog(address, StreamAccess::checkInterrupt))
        {
            return operation.apply(log, address);
        }
    }

    InputPartition[] partitions(final StreamAddress address, final List<Range> ranges)
    {
        return Partitions
            .bySize(ranges, options.minPartitions() == null ? 0 : options.minPartitions())
            .stream()
            .map((part) -> new RangePartition(address, part, locations(address, part)))
            .toArray(InputPartition[]::new);
    }

    PartitionReaderFactory readerFactory(final StructType schema)
    {
        return new ReaderFactory(schema, options.timestampFrom(), isRaw(), options.failOnDataLoss(), Hosts.identity());
    }

    /** Refuse the wire format, unless its messages are wanted unchanged. */
    void refuseFramed(final Message first)
    {
        if (!isRaw() && first != null && first.isFramed())
        {
            throw Refusals.payload(first.isArrow() ? "arrow" : "framed");
        }
    }

    private boolean isRaw()
    {
        return "raw".equals(options.payload());
    }

    static void warn(final Finding finding)
    {
        LOG.warn(finding.sentence());
    }

    static long nowNs()
    {
        return TimeUnit.MILLISECONDS.toNanos(System.currentTimeMillis());
    }

    /** End a wait of an interrupted thread, by the exception by which Spark recognises the end of a query. */
    private static void checkInterrupt()
    {
        if (Thread.currentThread().isInterrupted())
        {
            throw new UncheckedIOException(new InterruptedIOException("interrupted"));
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
