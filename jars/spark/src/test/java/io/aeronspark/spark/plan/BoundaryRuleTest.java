package io.aeronspark.spark.plan;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.aeronspark.spark.plan.BoundaryRule.WalkRange;
import io.aeronspark.spark.plan.BoundaryRule.Walked;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class BoundaryRuleTest
{
    private static final int TERM = 1024;

    private final List<WalkRange> walks = new ArrayList<>();

    @Test
    void shouldWalkOnlyTheTermOfTheLimit()
    {
        final Boundary found = BoundaryRule.find((range) ->
        {
            walks.add(range);
            return new Walked(2112, 1, -1);
        }, TERM, 0, 2128, 5000, Log.UNCOUNTED);
        assertEquals(new Boundary(2112, 0), found);
        assertEquals(List.of(new WalkRange(2048, 5000, 2112, Long.MAX_VALUE, false)), walks);
    }

    @Test
    void shouldTakeTheBeginOfAnIncompleteMessageOrOfTheTerm()
    {
        assertEquals(2080, BoundaryRule.find((range) -> new Walked(-1, 0, 2080), TERM, 0, 3072, 5000, -1).position());
        assertEquals(2048, BoundaryRule.find((range) -> new Walked(-1, 0, -1), TERM, 0, 3072, 5000, -1).position());
    }

    @Test
    void shouldWalkFromTheStartIfTheTermHasIt()
    {
        final Boundary found = BoundaryRule.find((range) ->
        {
            walks.add(range);
            return new Walked(-1, 0, -1);
        }, TERM, 2080, 2100, 5000, Log.UNCOUNTED);
        assertEquals(new Boundary(2080, 0), found);
        assertEquals(List.of(new WalkRange(2080, 5000, 2080, Long.MAX_VALUE, true)), walks);
    }

    @Test
    void shouldContinueBehindDamageAtTheNextTermOrTheEnd()
    {
        assertEquals(2048, BoundaryRule.afterDamage(1056, TERM, 5000));
        assertEquals(1500, BoundaryRule.afterDamage(1056, TERM, 1500));
    }
}
