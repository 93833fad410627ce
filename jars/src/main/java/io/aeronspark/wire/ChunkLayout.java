package io.aeronspark.wire;

/** Where the fields of a chunk's header are, in bytes; docs/wire-format.md describes them. All are little-endian. */
public final class ChunkLayout
{
    /** "AsF1". */
    public static final int MAGIC = 0x31467341;
    public static final int HEADER_LENGTH = 72;
    public static final int FLAGS_OFFSET = 6;
    public static final int ROWS_OFFSET = 12;
    public static final int GROUP_OFFSET = 16;
    public static final int FIRST_OF_GROUP = 1;
    public static final int LAST_OF_GROUP = 2;

    static final int VERSION = 1;
    static final int BYTES = 1;
    static final int NOT_CONTINUED = -1;
    static final int CRC_OFFSET = 8;
    static final int CRC_END = 12;
    static final int TOTAL_OFFSET = 24;
    static final int PAYLOAD_OFFSET = 32;
    static final int PUBLISHED_OFFSET = 40;
    static final int BATCH_OFFSET = 48;
    static final int ROW_OFFSET = 56;
    static final int PARTITION_OFFSET = 64;

    private ChunkLayout()
    {
    }

    /** The bytes before the payload, with a writer id of this length. */
    static int headerLength(final int writerLength)
    {
        return HEADER_LENGTH + (writerLength + 7) / 8 * 8;
    }
}
