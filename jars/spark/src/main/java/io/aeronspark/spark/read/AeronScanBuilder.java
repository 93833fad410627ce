package io.aeronspark.spark.read;

import io.aeronspark.spark.column.RawSchema;
import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.option.ReadOptions;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;

/** Takes the columns and filters of one query. */
final class AeronScanBuilder implements ScanBuilder, SupportsPushDownRequiredColumns, SupportsPushDownV2Filters
{
    private final Map<String, String> options;
    private final PushedFilters filters = new PushedFilters();
    private StructType schema;

    /**
     * @throws OptionError for an option that has a wrong value, or that this source does not support.
     */
    AeronScanBuilder(final StructType schema, final Map<String, String> options)
    {
        this.options = options;
        this.schema = schema;
        Refusals.check(ReadOptions.ofAnyRead(options), schema, RawSchema.ALL);
    }

    @Override
    public void pruneColumns(final StructType requiredSchema)
    {
        schema = requiredSchema;
    }

    /** Return all filters, because the bounds are coarser than rows. */
    @Override
    public Predicate[] pushPredicates(final Predicate[] predicates)
    {
        filters.take(predicates);
        return predicates;
    }

    @Override
    public Predicate[] pushedPredicates()
    {
        return filters.taken();
    }

    @Override
    public Scan build()
    {
        return new AeronScan(options, schema, filters.bounds());
    }
}
