package io.aeronspark.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import org.junit.jupiter.api.Test;

class LastErrorHandlerTest
{
    @Test
    void theLastErrorIsKeptAndAllAreCounted()
    {
        final LastErrorHandler latch = new LastErrorHandler();
        assertNull(latch.last());
        final Exception last = new Exception("second");
        latch.onError(new Exception("first"));
        latch.onError(last);
        assertSame(last, latch.last());
        assertEquals(2, latch.count());
    }
}
