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
    private final Fault fault;
    private int end;
    private int version;
    private long entries;
    private long emptyEntries;

    MessageWalk(final Memory source, final boolean isBigEndian, final Fault fault)
    {
        this.source = source;
        this.isBigEndian = isBigEndian;
        this.fault = fault;
    }

    /**
     * Walk the message whose block begins at {@code at}.
     *
     * @return index behind the message, or -1 if it is malformed, with the reason in the fault.
     */
    int walk(final Block block, final int at, final long blockLength, final int version, final int end)
    {
        this.end = end;
        this.version = version;
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
        return entry(block, at, (int)blockLength);
    }

    /** Entries that the last message has in all its groups. */
    long entries()
    {
        return entries;
    }

    private int entry(final Block block, final int at, final int blockLength)
    {
        final Level level = block.level;
        level.add(at, version);
        if (!block.checks.isEmpty() && !checkValues(block.checks, at))
        {
            return -1;
        }
        return block.parts.length == 0 ? at + blockLength : parts(block, level.count - 1, at + blockLength);
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

    private int parts(final Block block, final int index, final int start)
    {
        int at = start;
        for (final Block.Part part : block.parts)
        {
            at = part.group() != null ? group(part.group(), index, at) : data(part.data(), index, at);
            if (at < 0)
            {
                return at;
            }
        }
        return at;
    }

    private int data(final Block.DataPart part, final int index, final int at)
    {
        if (part.since() > version)
        {
            part.places().setAbsent(index, index + 1);
            return at;
        }
        if (part.headerLength() > end - at)
        {
            return fault.at(at, "the length of '" + part.name() + "' is missing");
        }
        final long length = Primitive.read(source, at + part.lengthOffset(), part.lengthPrimitive(), isBigEndian);
        final int place = at + part.headerLength();
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
        if (part.headerLength() > end - at)
        {
            return fault.at(at, "the header of the group '" + part.name() + "' is missing");
        }
        final long length = Primitive.read(source, at + part.lengthOffset(), part.lengthPrimitive(), isBigEndian);
        final long count = Primitive.read(source, at + part.countOffset(), part.countPrimitive(), isBigEndian);
        final int next = entries(part, at + part.headerLength(), length, count);
        block.level.endGroup(index, true);
        return next;
    }

    private int entries(final Block.GroupPart part, final int start, final long length, final long count)
    {
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
        entries += count;
        emptyEntries += length == 0 && block.parts.length == 0 ? count : 0;
        if (entries > MAX_ENTRIES || emptyEntries > MAX_EMPTY_ENTRIES)
        {
            return tooMany(part, start, length, count);
        }
        if (block.parts.length == 0 && block.checks.isEmpty())
        {
            block.level.addAll(start, (int)length, (int)count, version);
            return start + (int)(count * length);
        }
        return entriesWithParts(part, start, (int)length, (int)count);
    }

    private int entriesWithParts(final Block.GroupPart part, final int start, final int length, final int count)
    {
        int at = start;
        for (int index = 0; index < count; index++)
        {
            if (length > end - at)
            {
                return tooMany(part, at, length, count);
            }
            final int next = entry(part.block(), at, length);
            if (next < 0)
            {
                return next;
            }
            if (next == at && part.block().parts.length > 0 && ++emptyEntries > MAX_EMPTY_ENTRIES)
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
