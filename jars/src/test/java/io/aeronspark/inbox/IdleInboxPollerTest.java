package io.aeronspark.inbox;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeronspark.inbox.IdleInboxPoller.IdleInbox;
import org.junit.jupiter.api.Test;

class IdleInboxPollerTest
{
    private int threads;
    private final IdleInboxPoller poller = new IdleInboxPoller(runnable ->
    {
        threads++;
        return new Thread(() -> {}); // the test polls by itself
    });

    private static final class FakeInbox implements IdleInbox
    {
        boolean hasWork;
        boolean isBroken;
        int wakeUps;

        @Override
        public boolean hasWork()
        {
            if (isBroken)
            {
                throw new IllegalStateException("the client is closed");
            }
            return hasWork;
        }

        @Override
        public void wakeUp()
        {
            wakeUps++;
        }
    }

    @Test
    void wakesOnlyInboxesWithWorkAndOnlyOnce()
    {
        final FakeInbox busy = new FakeInbox();
        final FakeInbox idle = new FakeInbox();
        poller.add(busy);
        poller.add(idle);
        busy.hasWork = true;
        assertTrue(poller.poll());
        assertTrue(poller.poll());
        assertEquals(1, busy.wakeUps);
        assertEquals(0, idle.wakeUps);
        idle.hasWork = true;
        assertFalse(poller.poll());
        assertEquals(1, idle.wakeUps);
    }

    @Test
    void leavesAnInboxThatWasRemoved()
    {
        final FakeInbox inbox = new FakeInbox();
        poller.add(inbox);
        poller.remove(inbox);
        inbox.hasWork = true;
        assertFalse(poller.poll());
        assertEquals(0, inbox.wakeUps);
    }

    @Test
    void wakesAnInboxThatFailsSoThatItsOwnThreadMeetsTheError()
    {
        final FakeInbox broken = new FakeInbox();
        broken.isBroken = true;
        poller.add(broken);
        assertFalse(poller.poll());
        assertEquals(1, broken.wakeUps);
    }

    @Test
    void startsOneThreadForAllInboxes()
    {
        poller.add(new FakeInbox());
        poller.add(new FakeInbox());
        assertEquals(1, threads);
    }
}
