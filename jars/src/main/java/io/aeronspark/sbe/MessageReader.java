package io.aeronspark.sbe;

import org.agrona.collections.Int2ObjectHashMap;

/**
 * Reads one message at a time: its header, then its parts, as a row or as what the policies for other and malformed
 * messages say.
 */
final class MessageReader
{
    static final int FAILFAST = 0;
    static final int PERMISSIVE = 1;
    static final int SKIP = 0;
    static final int FAIL = 2;

    final MessageRows rows = new MessageRows();
    final Fault fault;
    private final Memory source;
    private final int mode;
    private final int others;
    private final int schemaId;
    private final MessageHeader header;
    private final MessageWalk walk;
    private final MessageType[] types;
    private final Int2ObjectHashMap<MessageType> typesById = new Int2ObjectHashMap<>();
    private MessageType lastType;
    long otherCount;
    long droppedCount;
    long entries;
    /** Whether the walk has to end with the fault, and at which value and message. */
    boolean isFailed;
    boolean isOther;
    int failedSource;
    int failedIndex;

    MessageReader(
        final Memory source,
        final int mode,
        final int others,
        final int schemaId,
        final MessageHeader header,
        final MessageWalk walk,
        final MessageType[] types,
        final Fault fault)
    {
        this.source = source;
        this.mode = mode;
        this.others = others;
        this.schemaId = schemaId;
        this.header = header;
        this.types = types;
        this.walk = walk;
        this.fault = fault;
        for (final MessageType type : types)
        {
            typesById.put(type.templateId, type);
        }
        lastType = types[0];
    }

    void clear()
    {
        rows.clear();
        isFailed = false;
        isOther = false;
        entries = 0;
        otherCount = 0;
        droppedCount = 0;
    }

    /** Give every level of the message types as many entries as there are rows. */
    void finish()
    {
        for (final MessageType type : types)
        {
            if (type.isChosen)
            {
                type.pad(rows.count);
            }
        }
    }

    /**
     * Read the message at {@code at}.
     *
     * @param mustFindEnd whether the caller needs the end of a message that is not wanted, too.
     * @return index behind the message, or -1 if the message is malformed.
     */
    int read(final int value, final int index, final int at, final int end, final boolean mustFindEnd)
    {
        if (header.length > end - at)
        {
            fault.at(at, "only " + (end - at) + " bytes are left, and the header has " + header.length);
            return malformed(value, index, at, end);
        }
        header.read(source, at);
        final int templateId = header.templateId;
        final long schema = header.schemaId;
        final int version = header.version;
        final MessageType type = schema == schemaId ? typeOf(templateId) : null;
        if (type == null && mustFindEnd)
        {
            fault.at(
                at, "template " + templateId + " of schema " + schema + " is not known, so its end cannot be found");
            return malformed(value, index, at, end);
        }
        if (type == null || (!type.isChosen && !mustFindEnd))
        {
            other(value, index, at, templateId, schema, version);
            return end;
        }
        return known(type, value, index, at, end, mustFindEnd);
    }

    private int known(
        final MessageType type,
        final int value,
        final int index,
        final int at,
        final int end,
        final boolean mustFindEnd)
    {
        if (type.isChosen)
        {
            type.pad(rows.count);
        }
        type.mark();
        final int next = walk.walk(type.block, at + header.length, header, end, mustFindEnd);
        entries += walk.entries();
        if (next < 0)
        {
            type.rollBack();
            return malformed(value, index, at, end);
        }
        if (type.isChosen)
        {
            rows.add(value, index, type, type.templateId, header.version);
        }
        else
        {
            type.rollBack();
            other(value, index, at, type.templateId, schemaId, header.version);
        }
        return next;
    }

    private MessageType typeOf(final int templateId)
    {
        if (lastType.templateId != templateId)
        {
            final MessageType found = typesById.get(templateId);
            if (found == null)
            {
                return null;
            }
            lastType = found;
        }
        return lastType;
    }

    private void other(
        final int value, final int index, final int at, final int templateId, final long schema, final int version)
    {
        otherCount++;
        if (others == FAIL)
        {
            fault.at(at, "the message has template " + templateId + " of schema " + schema + ", which is not wanted");
            fail(value, index);
            isOther = true;
        }
        else if (others != SKIP)
        {
            rows.add(value, index, null, templateId, version);
        }
    }

    /** Handle the malformed message from {@code at} to {@code end}, for the reason in the fault. Returns -1. */
    int malformed(final int value, final int index, final int at, final int end)
    {
        if (mode == FAILFAST)
        {
            fail(value, index);
        }
        else if (mode == PERMISSIVE)
        {
            rows.addCorrupt(value, index, at, end - at);
        }
        else
        {
            droppedCount++;
        }
        return -1;
    }

    private void fail(final int value, final int index)
    {
        isFailed = true;
        failedSource = value;
        failedIndex = index;
    }
}
