package io.aeronspark.spark.read;

import io.aeronspark.spark.column.RawSchema;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Provides the source {@code aeron-jvm} to Spark. The options are checked when a scan is built, because a table serves
 * reads and writes alike.
 */
public final class AeronProvider implements TableProvider, DataSourceRegister
{
    static final String NAME = "aeron-jvm";

    @Override
    public String shortName()
    {
        return NAME;
    }

    @Override
    public StructType inferSchema(final CaseInsensitiveStringMap options)
    {
        return RawSchema.ALL;
    }

    @Override
    public boolean supportsExternalMetadata()
    {
        return true;
    }

    @Override
    public Table getTable(final StructType schema, final Transform[] partitioning, final Map<String, String> properties)
    {
        return new AeronTable(schema, properties);
    }
}
