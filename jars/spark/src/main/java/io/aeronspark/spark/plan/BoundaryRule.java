package io.aeronspark.spark.plan;

/** Finds the position at which a range of a recording may end, by walks over at most one term of frame headers. */
public final class BoundaryRule
{
    static final long NONE = -1;

    /**
     * The recorded range {@code [start, end)} of a walk, and its limits.
     *
     * @param start      begin of a message or of a term.
     * @param end        a recorded position.
     * @param limit      highest boundary.
     * @param maxRows    most messages.
     * @param atLeastOne whether to take the first message even if it alone exceeds the limits.
     */
    public record WalkRange(long start, long end, long limit, long maxRows, boolean atLeastOne)
    {
        /** Position at which the walk stops reading; it can be inside a frame if it is before {@code end}. */
        public long stop()
        {
            return atLeastOne ? end : limit;
        }
    }

    /**
     * Result of a walk; positions are -1 if there is none.
     *
     * @param boundary last boundary within the limits.
     * @param rows     messages before it.
     * @param open     begin of the message that is not complete at the end of the walk.
     */
    public record Walked(long boundary, long rows, long open)
    {
    }

    /** Walks a range. */
    public interface Walk
    {
        /** Walk until a limit or the end of the range. */
        Walked over(WalkRange range);
    }

    private BoundaryRule()
    {
    }

    /** Return the boundary; see {@link Log#boundary}. A damaged part counts as padding. */
    public static Boundary find(
        final Walk walk, final int termLength, final long start, final long limit, final long end, final long maxRows)
    {
        final long aligned = limit - limit % Mark.FRAME_ALIGNMENT;
        if (maxRows == Log.UNCOUNTED)
        {
            final long found = lastOfTerm(walk, termLength, start, aligned, end);
            if (found > start)
            {
                return new Boundary(found, 0);
            }
        }
        final long rows = maxRows == Log.UNCOUNTED ? Long.MAX_VALUE : maxRows;
        final Walked walked = walk.over(new WalkRange(start, end, aligned, rows, true));
        return walked.boundary() == NONE ? new Boundary(start, 0) : new Boundary(walked.boundary(), walked.rows());
    }

    /**
     * Return where reading continues after a damaged frame: the next term, or {@code end} before it. Nothing else shows
     * where the next frame begins.
     */
    public static long afterDamage(final long position, final int termLength, final long end)
    {
        return Math.min(position - position % termLength + termLength, end);
    }

    private static long lastOfTerm(
        final Walk walk, final int termLength, final long start, final long limit, final long end)
    {
        final long inTerm = limit % termLength == 0 ? limit - 1 : limit;
        final long term = inTerm - Math.floorMod(inTerm, termLength);
        if (term <= start)
        {
            return start;
        }
        final Walked walked = walk.over(new WalkRange(term, end, limit, Long.MAX_VALUE, false));
        final long open = walked.open() == NONE ? term : walked.open();
        return Math.max(start, walked.boundary() == NONE ? open : walked.boundary());
    }
}
