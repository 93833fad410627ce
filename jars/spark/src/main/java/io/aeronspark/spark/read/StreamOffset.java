package io.aeronspark.spark.read;

import io.aeronspark.spark.plan.OffsetJson;
import io.aeronspark.spark.plan.QueryOffset;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** A text as an offset of Spark, which compares offsets as texts. */
final class StreamOffset extends Offset
{
    private final String json;

    StreamOffset(final String json)
    {
        this.json = json;
    }

    @Override
    public String json()
    {
        return json;
    }

    static StreamOffset of(final QueryOffset offset)
    {
        return new StreamOffset(OffsetJson.write(offset));
    }

    static QueryOffset parse(final Offset offset)
    {
        return OffsetJson.parse(offset.json());
    }
}
