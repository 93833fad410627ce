package io.aeronspark.spark.channel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;

/** The declarations of options and channel parameters that both sources share: {@code options.json} of this jar. */
public final class Declarations
{
    private static final String FILE = "/io/aeronspark/spark/options.json";

    private Declarations()
    {
    }

    /** Return the part of the file with this name. */
    public static JsonNode part(final String name)
    {
        try (InputStream file = Declarations.class.getResourceAsStream(FILE))
        {
            return new ObjectMapper().readTree(file).required(name);
        }
        catch (final IOException ex)
        {
            throw new UncheckedIOException(ex);
        }
    }
}
