import java.io.ByteArrayInputStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;
import uk.co.real_logic.sbe.PrimitiveType;
import uk.co.real_logic.sbe.ir.Ir;
import uk.co.real_logic.sbe.ir.Token;
import uk.co.real_logic.sbe.otf.AbstractTokenListener;
import uk.co.real_logic.sbe.otf.OtfHeaderDecoder;
import uk.co.real_logic.sbe.otf.OtfMessageDecoder;
import uk.co.real_logic.sbe.xml.IrGenerator;
import uk.co.real_logic.sbe.xml.ParserOptions;
import uk.co.real_logic.sbe.xml.XmlSchemaParser;

/**
 * Decodes SBE messages of one length into columns with sbe-tool's on-the-fly decoder, for {@code benchmarks/sbe_decoding.py}.
 *
 * <pre>java OtfDecoder.java SCHEMA MESSAGES MESSAGE_BYTES SUMMED_FIELD_ID WARM_CALLS CALLS ROUNDS</pre>
 *
 * <p>A call decodes all messages in the file MESSAGES. It prints the sum of the column SUMMED_FIELD_ID, then for each round
 * the decoded messages in millions a second of this thread's processor time.
 */
public final class OtfDecoder {
    private static final int MAX_FIELD_ID = 63;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private final UnsafeBuffer buffer;
    private final int messageBytes;
    private final int count;
    private final Ir ir;
    private final OtfHeaderDecoder header;
    private final Columns columns;

    private OtfDecoder(final Ir ir, final byte[] messages, final int messageBytes) {
        this.ir = ir;
        this.messageBytes = messageBytes;
        buffer = new UnsafeBuffer(messages);
        count = messages.length / messageBytes;
        header = new OtfHeaderDecoder(ir.headerStructure());
        columns = new Columns(count);
    }

    public static void main(final String[] args) throws Exception {
        final byte[] schema = Files.readAllBytes(Path.of(args[0]));
        final Ir ir = new IrGenerator()
                .generate(XmlSchemaParser.parse(new ByteArrayInputStream(schema), ParserOptions.DEFAULT));
        final OtfDecoder decoder =
                new OtfDecoder(ir, Files.readAllBytes(Path.of(args[1])), Integer.parseInt(args[2]));
        decoder.decode(Integer.parseInt(args[4]));
        System.out.println(decoder.columns.sum(Integer.parseInt(args[3])));
        final int calls = Integer.parseInt(args[5]);
        for (int round = 0; round < Integer.parseInt(args[6]); round++) {
            final long started = THREADS.getCurrentThreadCpuTime();
            decoder.decode(calls);
            System.out.println((double) calls * decoder.count / (THREADS.getCurrentThreadCpuTime() - started) * 1000);
        }
    }

    private void decode(final int calls) {
        for (int call = 0; call < calls; call++) {
            for (int row = 0; row < count; row++) {
                final int offset = row * messageBytes;
                final List<Token> tokens = ir.getMessage(header.getTemplateId(buffer, offset));
                columns.row = row;
                OtfMessageDecoder.decode(
                        buffer,
                        offset + header.encodedLength(),
                        header.getSchemaVersion(buffer, offset),
                        header.getBlockLength(buffer, offset),
                        tokens,
                        columns);
            }
        }
    }

    /** Writes the value of each field into an array of the field: a number, or the bytes of a text. */
    private static final class Columns extends AbstractTokenListener {
        private final long[][] numbers = new long[MAX_FIELD_ID + 1][];
        private final byte[][] texts = new byte[MAX_FIELD_ID + 1][];
        private final int rows;
        private int row;
        private int composite; // the id of the field whose members follow; 0 outside of composites

        Columns(final int rows) {
            this.rows = rows;
        }

        long sum(final int field) {
            long sum = 0;
            for (final long number : numbers[field]) {
                sum += number;
            }
            return sum;
        }

        @Override
        public void onBeginComposite(
                final Token field, final List<Token> tokens, final int from, final int to) {
            composite = field.id();
        }

        @Override
        public void onEndComposite(
                final Token field, final List<Token> tokens, final int from, final int to) {
            composite = 0;
        }

        @Override
        public void onEnum(
                final Token field,
                final DirectBuffer data,
                final int index,
                final List<Token> tokens,
                final int from,
                final int to,
                final int version) {
            write(field.id(), data, index, tokens.get(from + 1));
        }

        @Override
        public void onEncoding(
                final Token field, final DirectBuffer data, final int index, final Token type, final int version) {
            if (!type.isConstantEncoding()) {
                write(composite == 0 ? field.id() : composite, data, index, type);
            }
        }

        private void write(final int field, final DirectBuffer data, final int index, final Token type) {
            final int length = type.arrayLength();
            if (length > 1) {
                if (texts[field] == null) {
                    texts[field] = new byte[rows * length];
                }
                data.getBytes(index, texts[field], row * length, length);
                return;
            }
            if (numbers[field] == null) {
                numbers[field] = new long[rows];
            }
            numbers[field][row] = read(data, index, type.encoding().primitiveType());
        }

        private static long read(final DirectBuffer data, final int index, final PrimitiveType type) {
            switch (type) {
                case CHAR:
                case INT8:
                    return data.getByte(index);
                case UINT8:
                    return data.getByte(index) & 0xFF;
                case INT16:
                    return data.getShort(index);
                case UINT16:
                    return data.getShort(index) & 0xFFFF;
                case INT32:
                    return data.getInt(index);
                case UINT32:
                    return data.getInt(index) & 0xFFFF_FFFFL;
                case INT64:
                case UINT64:
                    return data.getLong(index);
                default:
                    throw new IllegalArgumentException("a field of type " + type + " is not expected");
            }
        }
    }
}
