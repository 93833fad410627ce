package io.aeronspark.sbe;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import uk.co.real_logic.sbe.ir.Ir;
import uk.co.real_logic.sbe.json.JsonPrinter;
import uk.co.real_logic.sbe.xml.IrGenerator;
import uk.co.real_logic.sbe.xml.MessageSchema;
import uk.co.real_logic.sbe.xml.ParserOptions;
import uk.co.real_logic.sbe.xml.XmlSchemaParser;

/**
 * The reference's own decoder reads the messages that the writer of rows makes: {@code tests/unit/sbe/test_golden.py}
 * shows that the rows of {@code tests/golden/sbe/book.txt} become its messages.
 */
class WrittenMessagesTest
{
    private static final Path FOLDER = Path.of("..", "tests", "golden", "sbe");

    /** Each line has a message in little-endian order, the same in big-endian order, and its JSON. */
    private static List<String[]> lines() throws IOException
    {
        final List<String[]> lines = new ArrayList<>();
        for (final String line : Files.readAllLines(FOLDER.resolve("book.txt")))
        {
            lines.add(line.split("\t"));
        }
        return lines;
    }

    private static Ir schema(final String byteOrder) throws Exception
    {
        final String text = Files.readString(FOLDER.resolve("book.xml")).replace("littleEndian", byteOrder);
        final ParserOptions options = ParserOptions.builder().stopOnError(true).warningsFatal(true).build();
        final MessageSchema schema = XmlSchemaParser.parse(
            new ByteArrayInputStream(text.getBytes(StandardCharsets.UTF_8)), options);
        return new IrGenerator().generate(schema);
    }

    @ParameterizedTest
    @CsvSource({"littleEndian, 0", "bigEndian, 1"})
    void readsTheMessagesThatWereWritten(final String byteOrder, final int column) throws Exception
    {
        final JsonPrinter printer = new JsonPrinter(schema(byteOrder));
        final List<String[]> lines = lines();
        assertFalse(lines.isEmpty());
        for (final String[] line : lines)
        {
            final byte[] message = HexFormat.of().parseHex(line[column]);
            final StringBuilder found = new StringBuilder();
            printer.print(ByteBuffer.wrap(message), found);
            assertEquals(line[2], found.toString().replaceAll("\\s+", ""));
        }
    }
}
