package io.aeronspark.spark.plan;

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

/** The planning of {@code tests/golden/spark/planner.jsonl}, which {@code tests/unit/log} reads, too. */
class GoldenPlannerTest
{
    private static final Path FILE = Path.of("..", "..", "tests", "golden", "spark", "planner.jsonl");

    @Test
    void shouldAnswerAsPython() throws IOException
    {
        final List<Executable> cases = new ArrayList<>();
        for (final String line : Files.readAllLines(FILE, StandardCharsets.UTF_8))
        {
            final JsonNode golden = PlannerAnswers.JSON.readTree(line);
            cases.add(() -> assertEquals(
                golden.required("answer"),
                PlannerAnswers.JSON.readTree(PlannerAnswers.answer(golden).toString()),
                golden.required("case").textValue()));
        }
        assertFalse(cases.isEmpty());
        assertAll(cases);
    }
}
