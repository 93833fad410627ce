package io.aeronspark.spark.plan;

import io.aeronspark.spark.error.PythonText;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;

/**
 * The end of a micro-batch in each planned recording. {@code finished} are stopped recordings without further complete
 * messages; {@code turn} is the recording that was served first, if another one got nothing, else null.
 * <p>
 * The limits are distributed fairly over the recordings and never exceeded, except that a message larger than a limit
 * is a batch by itself. If any recording has a complete message, the batch has at least one. Shares are max-min fair,
 * but a share may be smaller than a recording's next message, in each batch: so one recording is served first, and the
 * next batch begins with the recording after it.
 */
public record BatchEnd(Map<String, Long> positions, Set<String> finished, String turn)
{
    /** Rounds of distributing rows that others did not use; each costs a boundary walk per recording. */
    private static final int ROUNDS = 4;

    /**
     * Return the end of the next batch in the recordings {@code wanted}, those with a backlog, from checked positions.
     *
     * @param maxBytes or null; below 1 it counts as 1.
     * @param maxRows  or null; below 1 it counts as 1.
     * @param turn     of the start offset, or null.
     */
    public static BatchEnd plan(
        final Map<String, Long> positions,
        final Collection<RecordingState> states,
        final Collection<String> wanted,
        final Boundaries boundaries,
        final Long maxBytes,
        final Long maxRows,
        final String turn)
    {
        final List<Recording> plans = new ArrayList<>();
        for (final RecordingState state : states)
        {
            if (wanted.contains(state.key()))
            {
                plans.add(new Recording(state, positions.get(state.key())));
            }
        }
        // the recordings behind the turn come first
        plans.sort(Comparator
            .comparing((Recording plan) -> turn != null && PythonText.compare(plan.key(), turn) <= 0)
            .thenComparing(Recording::key, PythonText::compare));
        final Budget budget = new Budget(
            maxBytes == null ? Long.MAX_VALUE : Math.max(1, maxBytes),
            maxRows == null ? Boundaries.UNCOUNTED : Math.max(1, maxRows),
            boundaries);
        final Recording first = budget.serveFirst(plans);
        if (first != null)
        {
            for (int round = 0; round < (maxRows == null ? 1 : ROUNDS); round++)
            {
                final boolean isLater = round > 0;
                budget.serveShares(plans.stream().filter((plan) -> isLater || plan != first).toList());
            }
            plans.forEach((plan) -> budget.offer(plan, budget.bytes, budget.rows));
        }
        final Map<String, Long> ends = new LinkedHashMap<>();
        final Set<String> finished = new HashSet<>();
        boolean isStarved = false;
        for (final Recording plan : plans)
        {
            ends.put(plan.key(), plan.at);
            isStarved |= plan.at == positions.get(plan.key()) && !plan.isComplete;
            if (plan.isComplete && !plan.state.isActive())
            {
                finished.add(plan.key());
            }
        }
        return new BatchEnd(ends, finished, first != null && isStarved ? first.key() : null);
    }

    /**
     * Distribute a limit over the wanted amounts, max-min fairly. Each amount above 0 gets at least 1 if the limit
     * allows; otherwise the first ones do.
     */
    static long[] share(final long[] wanted, final long limit)
    {
        final long[] shares = new long[wanted.length];
        final int[] asking = IntStream.range(0, wanted.length).filter((i) -> wanted[i] > 0).toArray();
        if (limit < asking.length)
        {
            IntStream.of(asking).limit(Math.max(0, limit)).forEach((i) -> shares[i] = 1);
            return shares;
        }
        // Smallest amount first. Of equal amounts the last one first: later ones here get the division's remainder.
        final List<Integer> ordered = IntStream.of(asking).boxed()
            .sorted(Comparator.comparingLong((Integer i) -> wanted[i]).thenComparing(Comparator.reverseOrder()))
            .toList();
        long remaining = limit;
        for (int index = 0; index < asking.length; index++)
        {
            final int i = ordered.get(index);
            shares[i] = Math.min(wanted[i], remaining / (asking.length - index));
            remaining -= shares[i];
        }
        return shares;
    }

    /** The plan of one recording in a batch. */
    private static final class Recording
    {
        private final RecordingState state;
        private long at;
        private boolean isComplete; // no further complete message
        private Boundary needs; // bytes and rows of the next message, if known
        // What the last share did not use: the next message needs more of one of them.
        private long unusedBytes = -1;
        private long unusedRows = -1;

        private Recording(final RecordingState state, final long at)
        {
            this.state = state;
            this.at = at;
            isComplete = at >= state.end();
        }

        private String key()
        {
            return state.key();
        }

        /** Whether the share is known to be too small for the next message. */
        private boolean needsMoreThan(final long bytes, final long rows)
        {
            if (needs != null)
            {
                return needs.position() > bytes || rows != Boundaries.UNCOUNTED && needs.rows() > rows;
            }
            return bytes <= unusedBytes && (rows == Boundaries.UNCOUNTED || rows <= unusedRows);
        }
    }

    /** The remaining limits of a batch, and the source of boundaries. Rows can be uncounted. */
    private static final class Budget
    {
        private final Boundaries boundaries;
        private final boolean countsRows;
        private long bytes;
        private long rows;

        private Budget(final long bytes, final long rows, final Boundaries boundaries)
        {
            this.bytes = bytes;
            this.rows = rows;
            this.boundaries = boundaries;
            countsRows = rows != Boundaries.UNCOUNTED;
        }

        /** Add as many messages of the recording to the batch as its share allows. */
        private void offer(final Recording plan, final long shareBytes, final long shareRows)
        {
            if (plan.isComplete || shareBytes <= 0 || countsRows && shareRows <= 0 ||
                plan.needsMoreThan(shareBytes, countsRows ? shareRows : Boundaries.UNCOUNTED))
            {
                return;
            }
            final long end = plan.state.end();
            final long limit = shareBytes >= end - plan.at ? end : plan.at + shareBytes;
            final Boundary found = boundaries.boundary(
                plan.state, plan.at, limit, end, countsRows ? shareRows : Boundaries.UNCOUNTED);
            final long size = found.position() - plan.at;
            final long count = countsRows ? found.rows() : 0;
            if (size == 0)
            {
                plan.isComplete = true;
            }
            else if (size > shareBytes || countsRows && count > shareRows)
            {
                plan.needs = new Boundary(size, count);
            }
            else
            {
                add(plan, size, count);
                plan.unusedBytes = shareBytes - size;
                plan.unusedRows = countsRows ? shareRows - count : 0;
                // With a limit of rows, the next message may be complete but have too many rows.
                plan.isComplete = plan.at == end || limit == end && !countsRows;
            }
        }

        private void add(final Recording plan, final long size, final long count)
        {
            plan.at += size;
            plan.needs = null;
            bytes -= size;
            rows -= countsRows ? count : 0;
        }

        /**
         * Add the share, or at least one message, of the first recording with a complete message. Return it, or null.
         * A message that is larger than a limit makes the budget negative, so it is a batch by itself.
         */
        private Recording serveFirst(final List<Recording> plans)
        {
            for (int index = 0; index < plans.size(); index++)
            {
                final Recording plan = plans.get(index);
                final long start = plan.at;
                final List<Recording> left = plans.subList(index, plans.size());
                offer(plan, byteShares(left)[0], rowShares(left)[0]);
                if (plan.needs != null)
                {
                    add(plan, plan.needs.position(), plan.needs.rows());
                    plan.isComplete = plan.at == plan.state.end();
                }
                if (plan.at > start)
                {
                    return plan;
                }
            }
            return null;
        }

        private void serveShares(final List<Recording> plans)
        {
            final List<Recording> incomplete = plans.stream().filter((plan) -> !plan.isComplete).toList();
            final long[] byteShares = byteShares(incomplete);
            final long[] rowShares = rowShares(incomplete);
            for (int i = 0; i < incomplete.size(); i++)
            {
                offer(incomplete.get(i), byteShares[i], rowShares[i]);
            }
        }

        private long[] byteShares(final List<Recording> plans)
        {
            return share(plans.stream().mapToLong((plan) -> plan.state.end() - plan.at).toArray(), bytes);
        }

        /** The number of rows in a recording is unknown, so each recording wants all rows. */
        private long[] rowShares(final List<Recording> plans)
        {
            return share(plans.stream().mapToLong((plan) -> rows).toArray(), rows);
        }
    }
}
