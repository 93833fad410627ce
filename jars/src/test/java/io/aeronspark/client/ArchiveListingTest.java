package io.aeronspark.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class ArchiveListingTest
{
    @Test
    void hasTheNumbersAndTextsOfEachRecording()
    {
        final ArchiveListing listing = new ArchiveListing();
        for (int id = 0; id < 2; id++)
        {
            listing.onRecordingDescriptor(
                1, 2, id, 3, 4, 5, 1L << 40, -7, 8, 9, 10, -11, 12, "channel", "original channel", "source");
        }
        assertEquals(2, listing.size());
        assertArrayEquals(new long[]{1, 3, 4, 5, 1L << 40, -7, 8, 9, 10, -11, 12}, listing.numbers(1));
        assertArrayEquals(new String[]{"channel", "original channel", "source"}, listing.texts(1));
    }

    @Test
    void hasTheNumbersAndTheChannelOfEachSubscription()
    {
        final ArchiveListing listing = new ArchiveListing();
        listing.onSubscriptionDescriptor(1, 2, 3, 4, "channel");
        assertEquals(1, listing.size());
        assertArrayEquals(new long[]{3, 4}, listing.numbers(0));
        assertArrayEquals(new String[]{"channel"}, listing.texts(0));
    }
}
