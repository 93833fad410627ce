package io.aeronspark.spark.plan;

import io.aeronspark.spark.plan.Finding.Kind;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Consumer;

/** Detects data loss in recordings: purged, truncated, deleted, replaced or rewritten ones. */
final class Losses
{
    private final boolean areErrors;
    private final Consumer<Finding> warn;

    /**
     * The position at which to continue in each recording.
     *
     * @param lost recordings with a loss that a repeated batch finds again.
     */
    record Checked(Map<String, Long> positions, Set<String> lost)
    {
    }

    /**
     * @param areErrors option 'failOnDataLoss'.
     * @param warn      is called with each accepted loss.
     */
    Losses(final boolean areErrors, final Consumer<Finding> warn)
    {
        this.areErrors = areErrors;
        this.warn = warn;
    }

    /**
     * Return the position at which to continue after an offset in each recording of {@code states}: of a purged
     * recording its start, of a truncated one its end, of a rewritten one the first message after the offset's position;
     * a replaced one is a new recording. No row is read twice.
     *
     * @param rewritten where to continue in the recordings with other bytes before the offset's position.
     * @throws io.aeronspark.spark.error.DataLossError with all losses, unless they are accepted.
     */
    Checked check(
        final QueryOffset offset,
        final Collection<RecordingState> states,
        final Map<String, Long> rewritten,
        final Overlaps overlaps)
    {
        final List<Finding> findings = new ArrayList<>();
        final Map<String, Long> missing = new HashMap<>(offset.recordings());
        states.forEach((state) -> missing.remove(state.key()));
        missing.forEach((key, position) -> findings.add(Finding.deleted(key, position)));
        final Map<String, Long> positions = new HashMap<>();
        for (final RecordingState state : states)
        {
            final Long position = offset.position(state.key());
            final Finding finding =
                position == null ? null : compare(offset, state, position, rewritten.keySet(), overlaps);
            if (finding != null)
            {
                findings.add(finding);
            }
            positions.put(state.key(), next(state, position, finding, rewritten));
        }
        findings.sort(Comparator.comparing(Finding::key, RecordingKey.ORDER));
        refuse(findings);
        final Set<String> lost = new HashSet<>();
        findings.stream().filter((one) -> one.kind() != Kind.REWRITTEN).forEach((one) -> lost.add(one.key()));
        return new Checked(positions, lost);
    }

    private static Finding compare(
        final QueryOffset offset,
        final RecordingState state,
        final long position,
        final Set<String> rewritten,
        final Overlaps overlaps)
    {
        final String key = state.key();
        final String known = offset.fingerprint(key);
        if (!known.equals(state.fingerprint()))
        {
            return Finding.replaced(key, position, known, state.fingerprint());
        }
        if (state.start() > position)
        {
            return overlaps.have(state, position) ? null : Finding.startPurged(key, position, state.start());
        }
        if (rewritten.contains(key))
        {
            return Finding.rewritten(key, position);
        }
        return state.end() < position ? Finding.truncated(key, position, state.end()) : null;
    }

    private static long next(
        final RecordingState state, final Long position, final Finding finding, final Map<String, Long> rewritten)
    {
        if (position == null || finding != null && finding.kind() == Kind.REPLACED)
        {
            return state.start();
        }
        final boolean isRewritten = finding != null && finding.kind() == Kind.REWRITTEN;
        final long wanted = isRewritten ? rewritten.get(state.key()) : position;
        return Math.min(Math.max(wanted, state.start()), state.end());
    }

    /**
     * Return the ranges of a batch by recording, without what is lost since its end was chosen.
     *
     * @param begun     offset at which the batch begins.
     * @param rewritten recordings whose bytes before the end differ from those of which it was chosen.
     * @throws io.aeronspark.spark.error.DataLossError with all losses, unless they are accepted.
     */
    List<Range> between(
        final QueryOffset begun,
        final QueryOffset end,
        final Collection<RecordingState> states,
        final Set<String> rewritten)
    {
        final Map<String, RecordingState> byKey = new HashMap<>();
        states.forEach((state) -> byKey.put(state.key(), state));
        final Map<String, Long> stops = new TreeMap<>(RecordingKey.ORDER);
        stops.putAll(end.positions());
        final List<Range> ranges = new ArrayList<>();
        final List<Finding> findings = new ArrayList<>();
        stops.forEach((key, stop) ->
        {
            final Long start = begun.position(key);
            if (start == null || start >= stop) // it joined without rows, or has none in this batch
            {
                return;
            }
            final RecordingState state = byKey.get(key);
            final Finding finding = lost(key, end.fingerprint(key), start, stop, state, rewritten.contains(key));
            if (finding != null)
            {
                findings.add(finding);
            }
            if (state == null ||
                finding != null && (finding.kind() == Kind.REPLACED || finding.kind() == Kind.REWRITTEN))
            {
                return;
            }
            final Range range = Range
                .of(state, Math.max(start, state.start()), Math.min(stop, state.end()))
                .marked(end.marks().get(key));
            if (range.length() > 0)
            {
                ranges.add(range);
            }
        });
        refuse(findings);
        return ranges;
    }

    private static Finding lost(
        final String key,
        final String known,
        final long start,
        final long stop,
        final RecordingState state,
        final boolean isRewritten)
    {
        if (state == null)
        {
            return Finding.deleted(key, start);
        }
        if (known != null && !known.equals(state.fingerprint()))
        {
            return Finding.replaced(key, start, known, state.fingerprint());
        }
        if (state.start() > start)
        {
            return Finding.startPurged(key, start, state.start());
        }
        if (state.end() < stop)
        {
            return Finding.truncated(key, stop, state.end());
        }
        return isRewritten ? Finding.rewritten(key, stop) : null;
    }

    private void refuse(final List<Finding> findings)
    {
        if (areErrors && !findings.isEmpty())
        {
            throw Finding.error(findings);
        }
        findings.forEach(warn);
    }
}
