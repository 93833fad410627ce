package io.aeronspark.guard;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.channels.DatagramChannel;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class LocalPortTest
{
    private final List<Throwable> errors = new ArrayList<>();
    private final LocalPort port = new LocalPort();

    @Test
    void readsThePortOnceAndKeepsIt() throws IOException
    {
        final DatagramChannel channel = DatagramChannel.open();
        channel.bind(new InetSocketAddress("127.0.0.1", 0));
        final int bound = ((InetSocketAddress)channel.getLocalAddress()).getPort();
        assertEquals(bound, port.of(channel, errors::add));
        channel.close();
        assertEquals(bound, port.of(channel, errors::add));
        assertEquals(List.of(), errors);
    }

    @Test
    void reportsASocketWhosePortCannotBeRead() throws IOException
    {
        final DatagramChannel channel = DatagramChannel.open();
        channel.close();
        assertEquals(0, port.of(channel, errors::add));
        assertEquals(1, errors.size());
    }
}
