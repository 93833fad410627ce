package io.aeronspark.client;

import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import org.junit.jupiter.api.Test;

class LastErrorHandlerTest
{
    @Test
    void keepsTheLastError()
    {
        final LastErrorHandler handler = new LastErrorHandler();
        assertNull(handler.last());
        final Exception second = new Exception("second");
        handler.onError(new Exception("first"));
        handler.onError(second);
        assertSame(second, handler.last());
    }
}
