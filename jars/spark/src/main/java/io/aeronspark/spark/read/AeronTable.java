package io.aeronspark.spark.read;

import static io.aeronspark.spark.read.AeronProvider.NAME;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A stream as a table of Spark. */
final class AeronTable implements Table, SupportsRead
{
    /** Before each option in the properties of a table that a catalog has. */
    private static final String CATALOG_PREFIX = "option.";

    private final StructType schema;
    private final Map<String, String> properties;

    AeronTable(final StructType schema, final Map<String, String> properties)
    {
        this.schema = schema;
        this.properties = properties;
    }

    @Override
    public String name()
    {
        return NAME;
    }

    @Override
    @SuppressWarnings("deprecation") // Spark 4.2 still calls it in place of columns().
    public StructType schema()
    {
        return schema;
    }

    @Override
    public Set<TableCapability> capabilities()
    {
        return Set.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(final CaseInsensitiveStringMap options)
    {
        return new AeronScanBuilder(schema, merged(properties, options.asCaseSensitiveMap()));
    }

    /** Return the options of a query, and those of a catalog's table that it does not give, in any case. */
    static Map<String, String> merged(final Map<String, String> properties, final Map<String, String> given)
    {
        final Map<String, String> merged = new HashMap<>(given);
        final Set<String> names = new HashSet<>();
        given.keySet().forEach((name) -> names.add(name.toLowerCase(Locale.ROOT)));
        properties.forEach((property, value) ->
        {
            final String name =
                property.startsWith(CATALOG_PREFIX) ? property.substring(CATALOG_PREFIX.length()) : "";
            if (!name.isEmpty() && !names.contains(name.toLowerCase(Locale.ROOT)))
            {
                merged.put(name, value);
            }
        });
        return merged;
    }
}
