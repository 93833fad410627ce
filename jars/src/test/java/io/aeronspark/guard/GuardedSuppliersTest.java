package io.aeronspark.guard;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.aeron.driver.media.UdpChannel;
import java.util.Properties;
import org.junit.jupiter.api.Test;

/** How both suppliers choose between a guarded endpoint and one of the other supplier. */
class GuardedSuppliersTest
{
    /** Only a guarded endpoint reads its rules, so a wrong rule shows that it is guarded. */
    private static final String WRONG_RULE = "|guard-rate=0";

    private final Properties properties = new Properties();
    private int unguarded;

    private void receive(final String channel)
    {
        new GuardedReceiveChannelEndpointSupplier(properties, (udpChannel, dispatcher, statusIndicator, context) ->
        {
            unguarded++;
            return null;
        }).newInstance(UdpChannel.parse(channel), null, null, null);
    }

    private void send(final String channel)
    {
        new GuardedSendChannelEndpointSupplier(properties, (udpChannel, statusIndicator, context) ->
        {
            unguarded++;
            return null;
        }).newInstance(UdpChannel.parse(channel), null, null);
    }

    private static void assertGuarded(final Runnable open)
    {
        assertThrows(IllegalArgumentException.class, open::run);
    }

    @Test
    void leaveChannelsThatDoNotAskToTheOtherSupplier()
    {
        receive("aeron:udp?endpoint=127.0.0.1:40100" + WRONG_RULE);
        send("aeron:udp?endpoint=127.0.0.1:40100" + WRONG_RULE);
        assertEquals(2, unguarded);
    }

    @Test
    void guardChannelsThatAsk()
    {
        assertGuarded(() -> receive("aeron:udp?endpoint=127.0.0.1:40100|guard=true" + WRONG_RULE));
        assertGuarded(() -> send("aeron:udp?endpoint=127.0.0.1:40100|guard=true" + WRONG_RULE));
        assertEquals(0, unguarded);
    }

    @Test
    void guardTheEndpointPortOfReceiversAndTheControlPortOfSenders()
    {
        properties.setProperty("aeronspark.guard.ports", "40100");
        assertGuarded(() -> receive("aeron:udp?endpoint=127.0.0.1:40100" + WRONG_RULE));
        assertGuarded(() -> send("aeron:udp?control=127.0.0.1:40100|control-mode=dynamic" + WRONG_RULE));
        receive("aeron:udp?endpoint=127.0.0.1:40101|control=127.0.0.1:40100" + WRONG_RULE);
        send("aeron:udp?endpoint=127.0.0.1:40100" + WRONG_RULE);
        assertEquals(2, unguarded);
    }

    @Test
    void refuseAGuardedSubscriptionWithSeveralDestinations()
    {
        assertGuarded(() -> receive("aeron:udp?control-mode=manual|guard=true"));
    }
}
