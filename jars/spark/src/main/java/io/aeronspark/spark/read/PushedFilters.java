package io.aeronspark.spark.read;

import io.aeronspark.spark.plan.FilterBounds;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;

/** Bounds on position, Aeron session and recording that follow from the filters of one query. */
final class PushedFilters
{
    private static final String POSITION = "position";
    private static final String SESSION = "sessionId";
    private static final String RECORDING = "recordingId";

    /** Bytes to which Aeron aligns frames: no message begins between two multiples of it. */
    private static final int FRAME_ALIGNMENT = 32;

    private final List<Predicate> taken = new ArrayList<>();
    private Long start;
    private Long end;
    private Set<Long> sessions;
    private Set<Long> recordings;

    /** Take the bounds of filters, all of which a wanted row matches. */
    void take(final Predicate[] predicates)
    {
        for (final Predicate predicate : predicates)
        {
            final Expression[] children = predicate.children();
            if (children.length >= 2 && isTaken(predicate.name(), children))
            {
                taken.add(predicate);
            }
        }
    }

    /** Filters from which a bound follows. */
    Predicate[] taken()
    {
        return taken.toArray(new Predicate[0]);
    }

    FilterBounds bounds()
    {
        final Set<Integer> ids = sessions == null ? null : new HashSet<>();
        if (sessions != null)
        {
            sessions.forEach((id) -> ids.add(id.intValue()));
        }
        return new FilterBounds(start, end, ids, recordings);
    }

    private boolean isTaken(final String operator, final Expression[] children)
    {
        if ("IN".equals(operator))
        {
            final Set<Long> values = numbers(children, 1, children.length - 1);
            return values != null && takeSet(column(children[0]), values);
        }
        if (children.length != 2)
        {
            return false;
        }
        final boolean isFlipped = children[0] instanceof Literal<?>;
        final String column = column(children[isFlipped ? 1 : 0]);
        final Set<Long> values = numbers(children, isFlipped ? 0 : 1, 1);
        if (values == null || values.isEmpty() || column.isEmpty())
        {
            return false;
        }
        final long value = values.iterator().next();
        if (POSITION.equals(column))
        {
            return takePosition(isFlipped ? flipped(operator) : operator, value);
        }
        return "=".equals(operator) && takeSet(column, values);
    }

    private boolean takePosition(final String operator, final long value)
    {
        switch (operator)
        {
            case "=" ->
            {
                from(value);
                before(behind(value));
            }
            case ">", ">=" -> from(value);
            case "<" -> before(value);
            case "<=" -> before(behind(value));
            default ->
            {
                return false;
            }
        }
        return true;
    }

    /** Position before which each message that begins at {@code value} or before it begins. */
    private static long behind(final long value)
    {
        return value > Long.MAX_VALUE - FRAME_ALIGNMENT ? Long.MAX_VALUE : value + FRAME_ALIGNMENT;
    }

    private void from(final long value)
    {
        start = Math.max(value, start == null ? 0 : start);
    }

    private void before(final long value)
    {
        end = end == null ? value : Math.min(value, end);
    }

    private boolean takeSet(final String column, final Set<Long> values)
    {
        switch (column)
        {
            case SESSION -> sessions = intersection(sessions, values);
            case RECORDING -> recordings = intersection(recordings, values);
            default ->
            {
                return false;
            }
        }
        return true;
    }

    private static Set<Long> intersection(final Set<Long> known, final Set<Long> values)
    {
        final Set<Long> both = new HashSet<>(values);
        if (known != null)
        {
            both.retainAll(known);
        }
        return both;
    }

    private static String flipped(final String operator)
    {
        return switch (operator)
        {
            case "<" -> ">";
            case "<=" -> ">=";
            case ">" -> "<";
            case ">=" -> "<=";
            default -> operator;
        };
    }

    private static String column(final Expression expression)
    {
        return expression instanceof NamedReference reference && reference.fieldNames().length == 1 ?
            reference.fieldNames()[0] : "";
    }

    /** Return the numbers of literals without NULL, which equals nothing; null if one is no number. */
    private static Set<Long> numbers(final Expression[] children, final int from, final int count)
    {
        final Set<Long> values = new HashSet<>();
        for (int i = from; i < from + count; i++)
        {
            if (!(children[i] instanceof Literal<?> literal))
            {
                return null;
            }
            if (literal.value() instanceof Long || literal.value() instanceof Integer)
            {
                values.add(((Number)literal.value()).longValue());
            }
            else if (literal.value() != null)
            {
                return null;
            }
        }
        return values;
    }
}
