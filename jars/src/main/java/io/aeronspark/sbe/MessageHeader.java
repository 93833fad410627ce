package io.aeronspark.sbe;

/** The header of each message: reads its four numbers by their places. A constant number has no bytes. */
final class MessageHeader
{
    final int length;
    long blockLength;
    int templateId;
    long schemaId;
    /** The message's version; a version that is longer than 31 bits is the largest number. */
    int version;
    /** Where the header says how many groups and data the message has, and what it says. */
    final Counts counts;
    long groups;
    long data;
    private final Number blockLengthField;
    private final Number templateIdField;
    private final Number schemaIdField;
    private final Number versionField;
    private final boolean isBigEndian;
    /** Whether the header is the usual one: four numbers of 16 bits, which are one word. */
    private final boolean isUsual;

    MessageHeader(final TableReader table, final boolean isBigEndian)
    {
        length = table.next();
        blockLengthField = new Number(table);
        templateIdField = new Number(table);
        schemaIdField = new Number(table);
        versionField = new Number(table);
        counts = Counts.read(table);
        this.isBigEndian = isBigEndian;
        isUsual = blockLengthField.isShortAt(0) && templateIdField.isShortAt(2) && schemaIdField.isShortAt(4) &&
            versionField.isShortAt(6);
    }

    /** Read the header at {@code at}. */
    void read(final Memory source, final int at)
    {
        groups = counts.groups(source, at, isBigEndian);
        data = counts.data(source, at, isBigEndian);
        if (isUsual)
        {
            final long word = source.getLong(at, isBigEndian);
            blockLength = (isBigEndian ? word >>> 48 : word) & 0xFFFF;
            templateId = (int)(isBigEndian ? word >>> 32 : word >>> 16) & 0xFFFF;
            schemaId = (isBigEndian ? word >>> 16 : word >>> 32) & 0xFFFF;
            version = (int)(isBigEndian ? word : word >>> 48) & 0xFFFF;
            return;
        }
        blockLength = read(source, at, blockLengthField);
        templateId = (int)read(source, at, templateIdField);
        schemaId = read(source, at, schemaIdField);
        version = (int)Math.min(read(source, at, versionField) & Long.MAX_VALUE, Integer.MAX_VALUE);
    }

    private long read(final Memory source, final int at, final Number number)
    {
        return number.isConstant ?
            number.constant :
            Primitive.read(source, at + number.offset, number.primitive, isBigEndian);
    }

    private static final class Number
    {
        private final int primitive;
        private final int offset;
        private final boolean isConstant;
        private final long constant;

        private Number(final TableReader table)
        {
            primitive = table.next();
            offset = table.next();
            isConstant = table.nextFlag();
            constant = table.nextLong();
        }

        private boolean isShortAt(final int wanted)
        {
            return primitive == Primitive.UINT16 && offset == wanted && !isConstant;
        }
    }
}
