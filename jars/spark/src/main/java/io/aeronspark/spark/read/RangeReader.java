package io.aeronspark.spark.read;

import io.aeronspark.spark.archive.ArchiveLog;
import io.aeronspark.spark.column.RowBatch;
import io.aeronspark.spark.plan.Range;
import java.util.Iterator;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Reads the ranges of a task, one after the other. The thread that closes a reader can be another one than the thread
 * that reads, and must not unmap a file that is being read: so one lock is held by {@link #next} and {@link #close}.
 */
final class RangeReader implements PartitionReader<ColumnarBatch>
{
    private final ReaderFactory settings;
    private final Iterator<Range> ranges;
    private final ArchiveLog log;
    private final RowBatch batch;
    private AvailableRows current;
    private boolean isClosed;
    private int rows;
    private long messages;
    private long bytes;
    private long waits;

    RangeReader(final RangePartition partition, final ReaderFactory settings)
    {
        this.settings = settings;
        ranges = partition.ranges().iterator();
        batch = new RowBatch(settings.schema(), settings.times());
        final TaskContext task = TaskContext.get();
        log = new ArchiveLog(partition.address(), () ->
        {
            if (task != null)
            {
                task.killTaskIfInterrupted();
            }
        });
    }

    @Override
    public synchronized boolean next()
    {
        rows = 0;
        while (!isClosed && rows == 0)
        {
            if (current == null)
            {
                if (!ranges.hasNext())
                {
                    return false;
                }
                current = new AvailableRows(log, ranges.next(), batch, settings);
            }
            rows = current.next();
            if (rows == 0)
            {
                endRange();
            }
        }
        messages += rows;
        bytes += batch.valueBytes(rows);
        return rows > 0;
    }

    @Override
    public ColumnarBatch get()
    {
        return batch.rows(rows);
    }

    @Override
    public CustomTaskMetric[] currentMetricsValues()
    {
        return ReadMetrics.values(messages, bytes, waits);
    }

    @Override
    public synchronized void close()
    {
        if (!isClosed)
        {
            isClosed = true;
            endRange();
            log.close();
        }
    }

    private void endRange()
    {
        if (current != null)
        {
            waits += current.waits();
            current.close();
            current = null;
        }
    }
}
