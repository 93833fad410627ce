package io.aeronspark.client;

import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class DaemonThreadFactoryTest
{
    @Test
    void makesDaemonThreads()
    {
        assertTrue(new DaemonThreadFactory().newThread(() -> {}).isDaemon());
    }
}
