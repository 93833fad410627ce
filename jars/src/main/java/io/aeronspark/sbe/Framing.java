package io.aeronspark.sbe;

/** Finds the messages in a value, which is one Aeron message. The numbers are those of a decode table. */
final class Framing
{
    static final int ONE = 0;
    static final int SEQUENCE = 1;
    static final int ALIGNED_8 = 2;
    static final int SOFH = 3;
    static final int LENGTH16 = 4;
    static final int LENGTH32 = 5;
    static final int CLUSTER = 6;

    /** FIX Simple Open Framing Header: its length, and its encoding types for SBE 1.0. */
    private static final int SOFH_LENGTH = 6;
    private static final int SOFH_BIG_ENDIAN_SBE = 0xEB50;
    private static final int SOFH_LITTLE_ENDIAN_SBE = 0x5BE0;

    /** Header and fields of Aeron Cluster's SessionMessageHeader: little-endian, template 1 of schema 111. */
    private static final int CLUSTER_HEADER_LENGTH = 8;
    private static final int CLUSTER_BLOCK_LENGTH = 24;
    private static final int CLUSTER_TEMPLATE = 1;
    private static final int CLUSTER_SCHEMA = 111;

    private final int kind;
    private final Memory source;
    private final MessageReader reader;
    private final long[] clusterFields = new long[MessageRows.CLUSTER_FIELDS];

    Framing(final int kind, final Memory source, final MessageReader reader)
    {
        this.kind = kind;
        this.source = source;
        this.reader = reader;
    }

    /** Read all messages of the value with this index. */
    void read(final int value, final int begin, final int end)
    {
        switch (kind)
        {
            case ONE -> reader.read(value, 0, begin, end, false);
            case CLUSTER -> cluster(value, begin, end);
            case SEQUENCE, ALIGNED_8 -> sequence(value, begin, end);
            default -> framed(value, begin, end);
        }
    }

    private void sequence(final int value, final int begin, final int end)
    {
        int at = begin;
        for (int index = 0; at < end && !reader.isFailed; index++)
        {
            final int next = reader.read(value, index, at, end, true);
            if (next < 0)
            {
                return; // where the next message begins is not known
            }
            at = kind == ALIGNED_8 ? begin + ((next - begin + 7) & ~7) : next;
        }
    }

    private void framed(final int value, final int begin, final int end)
    {
        int at = begin;
        for (int index = 0; at < end && !reader.isFailed; index++)
        {
            final int headerLength = kind == SOFH ? SOFH_LENGTH : kind == LENGTH16 ? 2 : 4;
            final long length = headerLength > end - at ? -1 : frameLength(at);
            if (length < headerLength || length > end - at)
            {
                reader.fault.at(at, "a frame of the length " + length + " is not in the " + (end - at) + " bytes left");
                reader.malformed(value, index, at, end);
                return;
            }
            final int next = at + (int)length;
            reader.read(value, index, at + headerLength, next, false);
            at = next;
        }
    }

    /** Bytes of a frame with its header, or -1 if its header is wrong. */
    private long frameLength(final int at)
    {
        if (kind == LENGTH16)
        {
            return source.getShort(at, false) & 0xFFFF; // includes itself
        }
        if (kind == LENGTH32)
        {
            return 4 + (source.getInt(at, false) & 0xFFFF_FFFFL); // does not include itself
        }
        for (final boolean isBigEndian : new boolean[] {true, false})
        {
            final int encoding = source.getShort(at + 4, isBigEndian) & 0xFFFF;
            if (encoding == SOFH_BIG_ENDIAN_SBE || encoding == SOFH_LITTLE_ENDIAN_SBE)
            {
                return source.getInt(at, isBigEndian) & 0xFFFF_FFFFL;
            }
        }
        return -1;
    }

    private void cluster(final int value, final int begin, final int end)
    {
        if (CLUSTER_HEADER_LENGTH > end - begin)
        {
            reader.fault.at(begin, "only " + (end - begin) + " bytes, which are no entry of a cluster's log");
            reader.malformed(value, 0, begin, end);
            return;
        }
        final int blockLength = source.getShort(begin, false) & 0xFFFF;
        final int template = source.getShort(begin + 2, false) & 0xFFFF;
        final int schema = source.getShort(begin + 4, false) & 0xFFFF;
        if (schema != CLUSTER_SCHEMA || template != CLUSTER_TEMPLATE)
        {
            return; // an event of the cluster itself, or of an extension
        }
        final int block = begin + CLUSTER_HEADER_LENGTH;
        if (blockLength < CLUSTER_BLOCK_LENGTH || blockLength > end - block)
        {
            reader.fault.at(begin, "the cluster's header has " + blockLength + " of " + (end - block) + " bytes");
            reader.malformed(value, 0, begin, end);
            return;
        }
        for (int field = 0; field < MessageRows.CLUSTER_FIELDS; field++)
        {
            clusterFields[field] = source.getLong(block + 8 * field, false);
        }
        final int before = reader.rows.count;
        reader.read(value, 0, block + blockLength, end, false);
        if (reader.rows.count > before)
        {
            reader.rows.setCluster(clusterFields);
        }
    }
}
