package io.aeronspark.sbe;

import java.nio.ByteOrder;
import org.agrona.DirectBuffer;

/** The header of each message: its four numbers by their places. A constant number has no bytes. */
final class MessageHeader
{
    final int length;
    final Number blockLength;
    final Number templateId;
    final Number schemaId;
    final Number version;

    MessageHeader(final TableReader table, final ByteOrder order)
    {
        length = table.next();
        blockLength = new Number(table, order);
        templateId = new Number(table, order);
        schemaId = new Number(table, order);
        version = new Number(table, order);
    }

    /** A number of the header. */
    static final class Number
    {
        private final int primitive;
        private final int offset;
        private final boolean isConstant;
        private final long constant;
        private final ByteOrder order;

        private Number(final TableReader table, final ByteOrder order)
        {
            primitive = table.next();
            offset = table.next();
            isConstant = table.nextFlag();
            constant = table.nextLong();
            this.order = order;
        }

        long read(final DirectBuffer source, final int start)
        {
            return isConstant ? constant : Primitive.read(source, start + offset, primitive, order);
        }
    }
}
