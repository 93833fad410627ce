package io.aeronspark.spark.read;

import io.aeronspark.spark.archive.StreamAddress;
import io.aeronspark.spark.plan.Range;
import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;

/**
 * The ranges of a task, of one or several recordings.
 *
 * @param locations names and addresses of the host with the archive's files.
 */
record RangePartition(StreamAddress address, List<Range> ranges, String[] locations) implements InputPartition
{
    @Override
    public String[] preferredLocations()
    {
        return locations.clone();
    }
}
