package io.aeronspark.inbox;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeron.ErrorCode;
import io.aeron.ExclusivePublication;
import io.aeron.LogBufferOnDisk;
import io.aeron.exceptions.RegistrationException;
import java.io.IOException;
import java.nio.file.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class PendingPublicationsTest
{
    private static final long ID = 4;
    private static final long INTERVAL_NS = 50_000;

    @TempDir
    Path folder;
    private LogBufferOnDisk log;
    private ExclusivePublication made;
    private RegistrationException refusal;
    private long nowNs;
    private final PendingPublications publications = new PendingPublications(this::lookUp);

    @BeforeEach
    void open() throws IOException
    {
        log = new LogBufferOnDisk(folder);
        log.connected(false);
    }

    @AfterEach
    void close()
    {
        log.close();
    }

    /** Like Aeron's client, which reports a refusal only once. */
    private ExclusivePublication lookUp(final long registrationId)
    {
        assertEquals(ID, registrationId);
        if (refusal != null)
        {
            final RegistrationException once = refusal;
            refusal = null;
            throw once;
        }
        return made;
    }

    private boolean hasProgress()
    {
        nowNs += INTERVAL_NS;
        return publications.hasProgress(nowNs);
    }

    @Test
    void reportsTheDriversResponseAndThenTheFirstSubscriber()
    {
        publications.add(ID);
        assertTrue(publications.hasAdded());
        assertFalse(hasProgress());
        assertNull(publications.find(ID));
        made = log.publication;
        assertTrue(hasProgress());
        assertSame(log.publication, publications.find(ID));
        assertFalse(hasProgress());
        log.connected(true);
        assertTrue(hasProgress());
        assertTrue(publications.areDone());
        assertFalse(hasProgress());
        assertSame(log.publication, publications.find(ID));
    }

    @Test
    void throwsARefusalEachTimeAlthoughTheClientThrowsItOnce()
    {
        publications.add(ID);
        refusal = new RegistrationException(ID, 1, ErrorCode.INVALID_CHANNEL, "no such channel");
        assertTrue(hasProgress());
        assertTrue(publications.areDone());
        assertThrows(RegistrationException.class, () -> publications.find(ID));
        assertThrows(RegistrationException.class, () -> publications.find(ID));
    }

    @Test
    void reportsARefusalThatTheProgramHasMetFirst()
    {
        publications.add(ID);
        refusal = new RegistrationException(ID, 1, ErrorCode.INVALID_CHANNEL, "no such channel");
        assertThrows(RegistrationException.class, () -> publications.find(ID));
        assertTrue(hasProgress());
    }

    @Test
    void stopsLookingForAPublicationThatWasRemoved()
    {
        publications.add(ID);
        publications.remove(ID);
        made = log.publication;
        assertFalse(hasProgress());
        assertTrue(publications.areDone());
        assertNull(publications.find(ID));
    }

    @Test
    void looksAtOnceAfterAnAddAndThenEveryFiftyMicroseconds()
    {
        publications.add(ID);
        assertFalse(publications.hasProgress(1_000));
        made = log.publication;
        assertFalse(publications.hasProgress(1_000 + INTERVAL_NS - 1));
        assertTrue(publications.hasProgress(1_000 + INTERVAL_NS));
    }
}
