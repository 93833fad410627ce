package io.aeronspark.spark.read;

import io.aeronspark.spark.option.ReadOptions;
import io.aeronspark.spark.plan.FilterBounds;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/**
 * The read of one query: a batch, or a stream as soon as Spark has asked for one. Only then are options refused that the
 * other kind of query has.
 */
final class AeronScan implements Scan, SupportsReportStatistics
{
    private final Map<String, String> options;
    private final StructType schema;
    private final FilterBounds filters;
    private AeronBatch batch;
    private boolean isStream;

    AeronScan(final Map<String, String> options, final StructType schema, final FilterBounds filters)
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
        return AeronProvider.NAME + " " + ReadOptions.ofAnyRead(options).route().label();
    }

    @Override
    public ColumnarSupportMode columnarSupportMode()
    {
        return ColumnarSupportMode.SUPPORTED;
    }

    @Override
    public synchronized Batch toBatch()
    {
        if (batch == null)
        {
            batch = new AeronBatch(ReadOptions.of(options, false), schema, filters);
        }
        return batch;
    }

    @Override
    public synchronized MicroBatchStream toMicroBatchStream(final String checkpointLocation)
    {
        isStream = true;
        return new AeronMicroBatchStream(ReadOptions.of(options, true), schema);
    }

    /** Bytes of the log of a batch; the number of rows is unknown. */
    @Override
    public synchronized Statistics estimateStatistics()
    {
        final OptionalLong bytes =
            isStream ? OptionalLong.empty() : OptionalLong.of(((AeronBatch)toBatch()).bytes());
        return new Statistics()
        {
            @Override
            public OptionalLong sizeInBytes()
            {
                return bytes;
            }

            @Override
            public OptionalLong numRows()
            {
                return OptionalLong.empty();
            }
        };
    }

    @Override
    public CustomMetric[] supportedCustomMetrics()
    {
        return ReadMetrics.supported();
    }
}
