package io.aeronspark.sbe;

/**
 * Passes over groups and data that the schema does not know, because their messages are newer. Their headers must have
 * the form that all headers of the schema have.
 */
final class UnknownParts
{
    /** Groups within groups; a schema may have as many elements within each other. */
    private static final int MAX_DEPTH = 64;

    private final Memory source;
    private final boolean isBigEndian;
    private final Fault fault;
    /** Null if the schema has no such header, or several different ones. */
    private final Dimensions dimensions;
    private final DataHeader dataHeader;

    UnknownParts(final TableReader table, final Memory source, final boolean isBigEndian, final Fault fault)
    {
        this.source = source;
        this.isBigEndian = isBigEndian;
        this.fault = fault;
        dimensions = table.nextFlag() ? Dimensions.read(table) : null;
        dataHeader = table.nextFlag() ? DataHeader.read(table) : null;
    }

    /** Pass over {@code count} groups. Returns the index behind them, or -1 with the reason in the fault. */
    int passGroups(final long count, final int start, final int end)
    {
        return groups(count, start, end, 1);
    }

    private int groups(final long count, final int start, final int end, final int depth)
    {
        if (count > 0 && (dimensions == null || depth > MAX_DEPTH))
        {
            return fault.at(start, cannot(count, "groups", depth > MAX_DEPTH ?
                "they have more than " + MAX_DEPTH + " levels" :
                "its groups have no header, or different ones"));
        }
        int at = start;
        for (long index = 0; index < count && at >= 0; index++)
        {
            at = group(at, end, depth);
        }
        return at;
    }

    private int group(final int start, final int end, final int depth)
    {
        if (dimensions.headerLength() > end - start)
        {
            return fault.at(start, "the header of a group that the schema does not know is missing");
        }
        final long length = dimensions.blockLength(source, start, isBigEndian);
        final long entries = dimensions.entries(source, start, isBigEndian);
        int at = start + dimensions.headerLength();
        if (length < 0 || entries < 0 || length > 0 && entries > (end - at) / length)
        {
            return fault.at(start, "a group that the schema does not know ends behind the message");
        }
        final long groups = dimensions.counts().groups(source, start, isBigEndian);
        final long data = dimensions.counts().data(source, start, isBigEndian);
        if (groups <= 0 && data <= 0)
        {
            return at + (int)(entries * length);
        }
        for (long index = 0; index < entries && at >= 0; index++)
        {
            at = entry(at, end, length, groups, data, depth);
        }
        return at;
    }

    private int entry(
        final int start, final int end, final long length, final long groups, final long data, final int depth)
    {
        if (length > end - start)
        {
            return fault.at(start, "an entry of a group that the schema does not know ends behind the message");
        }
        final int at = groups(groups, start + (int)length, end, depth + 1);
        return at < 0 ? at : passData(data, at, end);
    }

    /** Pass over {@code count} data. Returns the index behind them, or -1 with the reason in the fault. */
    int passData(final long count, final int start, final int end)
    {
        if (count > 0 && dataHeader == null)
        {
            return fault.at(start, cannot(count, "data", "its data have no header, or different ones"));
        }
        int at = start;
        for (long index = 0; index < count; index++)
        {
            final int left = end - at - dataHeader.headerLength();
            final long length = left < 0 ? 0 : dataHeader.length(source, at, isBigEndian);
            if (length < 0 || length > left)
            {
                return fault.at(at, "data that the schema does not know end behind the message");
            }
            at += dataHeader.headerLength() + (int)length;
        }
        return at;
    }

    private static String cannot(final long count, final String noun, final String reason)
    {
        return count + " " + noun + " that the schema does not know cannot be passed over: " + reason +
            ". Use the schema of the message's version.";
    }
}
