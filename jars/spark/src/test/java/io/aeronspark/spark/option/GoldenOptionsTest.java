package io.aeronspark.spark.option;

import com.fasterxml.jackson.databind.JsonNode;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

import static org.junit.jupiter.api.Assertions.assertAll;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

/** The options of {@code tests/golden/spark/options.jsonl}, which {@code tests/unit/options} reads, too. */
class GoldenOptionsTest
{
    private static final Path FILE = Path.of("..", "..", "tests", "golden", "spark", "options.jsonl");

    @Test
    void shouldAnswerAsPython() throws IOException
    {
        final List<Executable> cases = new ArrayList<>();
        for (final String line : Files.readAllLines(FILE, StandardCharsets.UTF_8))
        {
            final JsonNode golden = OptionAnswers.JSON.readTree(line);
            cases.add(() -> assertEquals(
                golden.required("answer"),
                OptionAnswers.JSON.readTree(OptionAnswers.answer(golden).toString()),
                golden.required("case").textValue()));
        }
        assertFalse(cases.isEmpty());
        assertAll(cases);
    }
}
