package io.aeronspark.spark.read;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Map;
import org.junit.jupiter.api.Test;

class AeronTableTest
{
    private static final Map<String, String> PROPERTIES = Map.of(
        "option.channel", "aeron:ipc", "option.streamId", "1001", "owner", "me", "provider", "aeron-jvm", "path", "x");

    @Test
    void shouldTakeTheOptionsOfATableInACatalogFromItsProperties()
    {
        assertEquals(Map.of("channel", "aeron:ipc", "streamId", "1001"), AeronTable.merged(PROPERTIES, Map.of()));
    }

    @Test
    void shouldPreferTheOptionsOfTheQueryInAnyCase()
    {
        assertEquals(
            Map.of("channel", "aeron:ipc", "STREAMID", "7"), AeronTable.merged(PROPERTIES, Map.of("STREAMID", "7")));
    }
}
