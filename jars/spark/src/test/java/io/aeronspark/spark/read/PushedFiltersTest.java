package io.aeronspark.spark.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.aeronspark.spark.plan.FilterBounds;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.junit.jupiter.api.Test;

class PushedFiltersTest
{
    private record Column(String name) implements NamedReference
    {
        @Override
        public String[] fieldNames()
        {
            return new String[]{name};
        }
    }

    private record Value(Number value) implements Literal<Number>
    {
        @Override
        public DataType dataType()
        {
            return value instanceof Long ? DataTypes.LongType : DataTypes.IntegerType;
        }

        @Override
        public Expression[] children()
        {
            return new Expression[0];
        }
    }

    private final PushedFilters filters = new PushedFilters();

    private static Predicate of(final String operator, final Object... operands)
    {
        final Expression[] children = new Expression[operands.length];
        for (int i = 0; i < operands.length; i++)
        {
            children[i] = operands[i] instanceof String name ? new Column(name) : new Value((Number)operands[i]);
        }
        return new Predicate(operator, children);
    }

    private FilterBounds take(final Predicate... predicates)
    {
        filters.take(predicates);
        return filters.bounds();
    }

    @Test
    void shouldBoundPositionsFromBothSides()
    {
        final FilterBounds bounds = take(of(">", "position", 64L), of(">", 640L, "position"), of("<=", "position", 320L));
        assertEquals(64, bounds.start());
        assertEquals(352, bounds.end());
        assertEquals(3, filters.taken().length);
    }

    @Test
    void shouldNotOverflowAtTheLargestPosition()
    {
        final FilterBounds bounds = take(of("<=", "position", Long.MAX_VALUE));
        assertEquals(Long.MAX_VALUE, bounds.end());
    }

    @Test
    void shouldIntersectSessionsAndRecordings()
    {
        final FilterBounds bounds = take(
            of("IN", "sessionId", 1, 2, 3),
            of("IN", "sessionId", 2, 3, 4),
            of("=", "sessionId", 3),
            of("=", 9L, "recordingId"));
        assertEquals(Set.of(3), bounds.sessions());
        assertEquals(Set.of(9L), bounds.recordings());
        assertNull(bounds.start());
    }

    @Test
    void shouldIgnoreOtherColumnsOperatorsAndOperands()
    {
        final FilterBounds bounds = take(
            of("=", "streamId", 7),
            of("<>", "position", 64L),
            of("<", "sessionId", 7),
            of("=", "position", "reservedValue"),
            of("IS_NOT_NULL", "position"));
        assertEquals(FilterBounds.NONE, bounds);
        assertEquals(0, filters.taken().length);
    }
}
