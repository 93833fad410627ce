package io.aeronspark.spark.archive;

import io.aeronspark.reading.RowAssembler;

/** The messages of a range of a recording, which begins and ends with a message. Not thread-safe. */
public interface RecordedRows extends AutoCloseable
{
    /** Whether there may be more of the range. */
    boolean hasMore();

    /**
     * Move the messages that are there now into the assembler's memory.
     *
     * @return whether the memory is full.
     * @throws UnreadableBytesException where no complete frame is, or if it cannot be read.
     */
    boolean fill(RowAssembler assembler) throws UnreadableBytesException;

    /** Take notice that the consumer has processed a batch, which may have taken long. */
    void onConsumed();

    /** Idle turns in which no data had arrived. */
    long waits();

    @Override
    void close();
}
