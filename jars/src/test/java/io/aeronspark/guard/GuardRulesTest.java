package io.aeronspark.guard;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeron.ChannelUri;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.Properties;
import org.junit.jupiter.api.Test;

class GuardRulesTest
{
    private static final String CHANNEL = "aeron:udp?endpoint=127.0.0.1:20121";
    private final Properties properties = new Properties();

    private GuardRules rules(final String more)
    {
        return GuardRules.of(ChannelUri.parse(CHANNEL + more), properties);
    }

    @Test
    void usesTheDefaults() throws UnknownHostException
    {
        final GuardRules rules = rules("");
        assertEquals(64 * 1024, rules.termLength());
        assertEquals(16 << 20, rules.ownedTermLength());
        assertEquals(1000, rules.sessions());
        assertTrue(rules.isOpen(1));
        assertFalse(rules.joining());
        assertTrue(rules.networks().permits(InetAddress.getByName("203.0.113.1")));
    }

    @Test
    void prefersTheParameterOfAChannelToTheProperty()
    {
        properties.setProperty("aeronspark.guard.sessions", "5");
        properties.setProperty("aeronspark.guard.rate", "6");
        final GuardRules rules = rules("|guard-sessions=7|guard-streams=3, 4|guard-joining=true");
        assertTrue(rules.joining());
        assertEquals(7, rules.sessions());
        assertEquals(6, rules.rate());
        assertTrue(rules.isOpen(4));
        assertFalse(rules.isOpen(5));
    }

    @Test
    void rejectsUnknownParametersAndImpossibleValues()
    {
        final IllegalArgumentException unknown =
            assertThrows(IllegalArgumentException.class, () -> rules("|guard-sesions=7"));
        assertTrue(unknown.getMessage().contains("guard-sesions"));
        final String[] impossible = {
            "guard-rate=0", "guard-rate=-1", "guard-sessions=3g", "guard-streams=x",
            "guard-allow=host", "guard-joining=1",
        };
        for (final String wrong : impossible)
        {
            assertThrows(RuntimeException.class, () -> rules("|" + wrong), wrong);
        }
    }

    @Test
    void guardsChannelsWithTheParameterOrAGuardedPort()
    {
        properties.setProperty("aeronspark.guard.ports", "100, 200-210");
        assertTrue(GuardRules.isGuarded(ChannelUri.parse(CHANNEL + "|guard=true"), 1, properties));
        assertFalse(GuardRules.isGuarded(ChannelUri.parse(CHANNEL + "|guard=false"), 100, properties));
        for (final int port : new int[]{100, 200, 205, 210})
        {
            assertTrue(GuardRules.isGuarded(ChannelUri.parse(CHANNEL), port, properties));
        }
        for (final int port : new int[]{99, 101, 199, 211})
        {
            assertFalse(GuardRules.isGuarded(ChannelUri.parse(CHANNEL), port, properties));
        }
        final ChannelUri wrong = ChannelUri.parse(CHANNEL + "|guard=yes");
        assertThrows(IllegalArgumentException.class, () -> GuardRules.isGuarded(wrong, 1, properties));
    }
}
