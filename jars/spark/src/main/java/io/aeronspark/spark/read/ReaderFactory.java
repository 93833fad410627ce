package io.aeronspark.spark.read;

import io.aeronspark.spark.archive.ArchiveAddress;
import io.aeronspark.spark.archive.Hosts;
import io.aeronspark.spark.error.SetupError;
import io.aeronspark.spark.option.TimestampFrom;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Makes the readers of tasks. Spark sends it to executors.
 *
 * @param schema         columns that the query uses.
 * @param times          location of the publish times, or null.
 * @param isRaw          whether messages in the wire format are rows, too.
 * @param failOnDataLoss option of this name.
 * @param plannedOn      host of Spark's driver.
 */
record ReaderFactory(
    StructType schema, TimestampFrom times, boolean isRaw, boolean failOnDataLoss, String plannedOn)
    implements PartitionReaderFactory
{
    @Override
    public boolean supportColumnarReads(final InputPartition partition)
    {
        return true;
    }

    @Override
    public PartitionReader<InternalRow> createReader(final InputPartition partition)
    {
        throw new UnsupportedOperationException("rows one by one");
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(final InputPartition partition)
    {
        final RangePartition wanted = (RangePartition)partition;
        for (final ArchiveAddress archive : wanted.address().archives())
        {
            if (ArchiveAddress.EMBEDDED.equals(archive.name()) && !plannedOn.equals(Hosts.identity()))
            {
                throw new SetupError(
                    "archive=embedded is the archive of one machine, but this task runs on another machine than the " +
                    "driver",
                    "Name an archive that all hosts can reach: option 'archive' with its control channel, such as " +
                    "'aeron:udp?endpoint=archive-host:8010'.");
            }
        }
        return new RangeReader(wanted, this);
    }
}
