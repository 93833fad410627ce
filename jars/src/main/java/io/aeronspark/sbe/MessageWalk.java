package io.aeronspark.sbe;

import java.util.List;

/**
 * Walks a message behind its header, checks all its bounds, and stores where its blocks and data are. Nothing behind
 * the end that the caller names is read.
 */
final class MessageWalk
{
    /** Entries that take no bytes: a group of constants only can have them, but not as many as a message likes. */
    static final int MAX_EMPTY_ENTRIES = 65_535;
    /** Entries of one message: more would need more memory than the decoder has. */
    static final int MAX_ENTRIES = 2_000_000;

    private final Memory source;
    private final boolean isBigEndian;
    private final int schemaVersion;
    private final UnknownParts unknown;
    private final Fault fault;
    /** Whether the counts of groups and data are believed, and whether the message's header has them. */
    private boolean followsCounts;
    private boolean isCounted;
    private int end;
    private int version;
    private long entries;
    private long emptyEntries;

    /** Groups and data of a message or entry that are not in the schema. */
    private record Extra(long groups, long data)
    {
        private static final Extra NONE = new Extra(0, 0);
    }

    MessageWalk(
        final Memory source,
        final boolean isBigEndian,
        final int schemaVersion,
        final UnknownParts unknown,
        final Fault fault)
    {
        this.source = source;
        this.isBigEndian = isBigEndian;
        this.schemaVersion = schemaVersion;
        this.unknown = unknown;
        this.fault = fault;
    }

    /**
     * Walk the message whose block begins at {@code at}.
     *
     * @param mustFindEnd whether the end is needed behind parts that the schema does not know, too.
     * @return index behind the message, or -1 if it is malformed, with the reason in the fault.
     */
    int walk(
        final Block block, final int at, final MessageHeader header, final int end, final boolean mustFindEnd)
    {
        final long blockLength = header.blockLength;
        this.end = end;
        version = header.version;
        entries = 0;
        emptyEntries = 0;
        if (blockLength > end - at)
        {
            return fault.at(
                at, "the block has " + blockLength + " bytes, but only " + (end - at) + " are left in the message");
        }
        final int requirement = block.requirement(version);
        if (blockLength < block.requiredLength(requirement))
        {
            return tooShort(at, "", block, requirement, blockLength);
        }
        isCounted = header.counts.hasAny();
        followsCounts = isCounted ?
            (header.groups > 0 || header.data > 0) && (version > schemaVersion || header.counts.hasBoth()) :
            version > schemaVersion;
        final Extra extra = extra(block, "the message", at, header.groups, header.data);
        if (extra == null || extra == Extra.NONE || mustFindEnd)
        {
            return extra == null ? -1 : entry(block, at, (int)blockLength, extra);
        }
        // nothing that is needed is behind the last part of the schema
        return entry(block, at, (int)blockLength, block.data.length > 0 ? new Extra(extra.groups, 0) : Extra.NONE);
    }

    /**
     * Compare the counts of a header with the schema.
     *
     * @return the parts that are not in the schema, or null if the counts are wrong, with the reason in the fault.
     */
    private Extra extra(final Block block, final String name, final int at, final long groups, final long data)
    {
        // sbe-tool's encoders write no counts, and leave 0 there
        if (!followsCounts || groups <= 0 && data <= 0 && !isCounted)
        {
            return Extra.NONE;
        }
        final int knownGroups = block.groupsOf(version);
        final int knownData = block.dataOf(version);
        if (!isPossible(groups, knownGroups) || !isPossible(data, knownData))
        {
            fault.at(at, "the counts of " + name + " say " + counted(groups, data) + ", and version " + version +
                " has " + (version > schemaVersion ? "at least " : "") + counted(knownGroups, knownData));
            return null;
        }
        final long extraGroups = Math.max(0, groups - knownGroups);
        final long extraData = Math.max(0, data - knownData);
        return extraGroups + extraData == 0 ? Extra.NONE : new Extra(extraGroups, extraData);
    }

    private boolean isPossible(final long count, final int known)
    {
        return count == Counts.NONE || (version > schemaVersion ? count >= known : count == known);
    }

    private static String counted(final long groups, final long data)
    {
        return groups == Counts.NONE ? data + " data" :
            data == Counts.NONE ? groups + " groups" : groups + " groups and " + data + " data";
    }

    /** Entries that the last message has in all its groups. */
    long entries()
    {
        return entries;
    }

    private int entry(final Block block, final int at, final int blockLength, final Extra extra)
    {
        final Level level = block.level;
        level.add(at, version);
        if (!block.checks.isEmpty() && !checkValues(block.checks, at))
        {
            return -1;
        }
        return hasParts(block, extra) ? parts(block, level.count - 1, at + blockLength, extra) : at + blockLength;
    }

    private boolean checkValues(final List<ValueCheck> checks, final int base)
    {
        for (int index = 0; index < checks.size(); index++)
        {
            final ValueCheck check = checks.get(index);
            if (!check.fits(source, base, version))
            {
                fault.at(base, "the value of '" + check.name() + "' does not fit the type of its column");
                return false;
            }
        }
        return true;
    }

    private static boolean hasParts(final Block block, final Extra extra)
    {
        return block.hasParts() || extra != Extra.NONE;
    }

    private int parts(final Block block, final int index, final int start, final Extra extra)
    {
        int at = start;
        for (int number = 0; number < block.groups.length && at >= 0; number++)
        {
            at = group(block.groups[number], index, at);
        }
        if (extra != Extra.NONE && at >= 0)
        {
            at = unknown.passGroups(extra.groups, at, end);
        }
        for (int number = 0; number < block.data.length && at >= 0; number++)
        {
            at = data(block.data[number], index, at);
        }
        return extra != Extra.NONE && at >= 0 ? unknown.passData(extra.data, at, end) : at;
    }

    private int data(final Block.DataPart part, final int index, final int at)
    {
        if (part.since() > version)
        {
            part.places().setAbsent(index, index + 1);
            return at;
        }
        final DataHeader header = part.header();
        if (header.headerLength() > end - at)
        {
            return fault.at(at, "the length of '" + part.name() + "' is missing");
        }
        final long length = header.length(source, at, isBigEndian);
        final int place = at + header.headerLength();
        if (length < 0 || length > end - place)
        {
            return fault.at(
                at, "'" + part.name() + "' has " + length + " bytes, but only " + (end - place) + " are left");
        }
        part.places().set(index, place, (int)length);
        return place + (int)length;
    }

    private int group(final Block.GroupPart part, final int index, final int at)
    {
        final Block block = part.block();
        if (part.since() > version)
        {
            block.level.endGroup(index, false);
            return at;
        }
        final Dimensions dimensions = part.dimensions();
        if (dimensions.headerLength() > end - at)
        {
            return fault.at(at, "the header of the group '" + part.name() + "' is missing");
        }
        final int next = entries(part, at);
        block.level.endGroup(index, true);
        return next;
    }

    /** Walk the entries of the group whose header is at {@code at}. */
    private int entries(final Block.GroupPart part, final int at)
    {
        final Dimensions dimensions = part.dimensions();
        final long length = dimensions.blockLength(source, at, isBigEndian);
        final long count = dimensions.entries(source, at, isBigEndian);
        final int start = at + dimensions.headerLength();
        if (count == 0)
        {
            return start;
        }
        final Block block = part.block();
        final int requirement = block.requirement(version);
        if (length < block.requiredLength(requirement))
        {
            return tooShort(start, part.name() + ".", block, requirement, length);
        }
        // both are at most 2^32, or negative for a 64-bit number with its highest bit
        if (length < 0 || count < 0 || count > MAX_ENTRIES || length > end - start || count * length > end - start)
        {
            return tooMany(part, start, length, count);
        }
        final Extra extra = followsCounts ? extraOf(part, at) : Extra.NONE;
        if (extra == null)
        {
            return -1;
        }
        final boolean hasParts = hasParts(block, extra);
        entries += count;
        emptyEntries += length == 0 && !hasParts ? count : 0;
        if (entries > MAX_ENTRIES || emptyEntries > MAX_EMPTY_ENTRIES)
        {
            return tooMany(part, start, length, count);
        }
        if (!hasParts && block.checks.isEmpty())
        {
            block.level.addAll(start, (int)length, (int)count, version);
            return start + (int)(count * length);
        }
        return entriesWithParts(part, start, (int)length, (int)count, extra);
    }

    private Extra extraOf(final Block.GroupPart part, final int at)
    {
        final Counts counts = part.dimensions().counts();
        return extra(
            part.block(),
            "the group '" + part.name() + "'",
            at,
            counts.groups(source, at, isBigEndian),
            counts.data(source, at, isBigEndian));
    }

    private int entriesWithParts(
        final Block.GroupPart part, final int start, final int length, final int count, final Extra extra)
    {
        final boolean hasParts = hasParts(part.block(), extra);
        int at = start;
        for (int index = 0; index < count; index++)
        {
            if (length > end - at)
            {
                return tooMany(part, at, length, count);
            }
            final int next = entry(part.block(), at, length, extra);
            if (next < 0)
            {
                return next;
            }
            if (next == at && hasParts && ++emptyEntries > MAX_EMPTY_ENTRIES)
            {
                return tooMany(part, at, length, count);
            }
            at = next;
        }
        return at;
    }

    private int tooMany(final Block.GroupPart part, final int at, final long length, final long count)
    {
        return fault.at(
            at,
            "the group '" + part.name() + "' has " + Long.toUnsignedString(count) + " entries of " +
            Long.toUnsignedString(length) + " bytes, but only " + (end - at) + " bytes are left (limits: " +
            MAX_ENTRIES + " entries, " + MAX_EMPTY_ENTRIES + " without bytes)");
    }

    private int tooShort(
        final int at, final String prefix, final Block block, final int requirement, final long length)
    {
        return fault.at(
            at,
            "the block has " + length + " bytes, but '" + prefix + block.requiredName(requirement) +
            "' of version " + version + " ends at " + block.requiredLength(requirement));
    }
}
