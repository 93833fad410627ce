package io.aeronspark.spark.plan;

import java.io.Serializable;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/**
 * The next positions of a query: in {@code recordings}, and for finished recordings in {@code done}. The rules of the
 * parts are those of {@code log/offsets} in Python. {@code origin}, {@code turn}, {@code stream} and {@code payload}
 * may be null. Immutable.
 */
public record QueryOffset(
    Map<String, Long> recordings,
    Map<String, String> fingerprints,
    Map<String, Finished> done,
    Map<String, Long> origin,
    boolean initial,
    Map<String, Long> joined,
    String turn,
    SourceStream stream,
    Map<String, Long> begins,
    Map<String, Mark> marks,
    String payload) implements Serializable
{
    /** Return the initial offset of a new query; {@code positions} has all recordings of {@code states}. */
    public static QueryOffset first(
        final Map<String, Long> positions, final Collection<RecordingState> states, final SourceStream stream)
    {
        final Map<String, String> prints = new LinkedHashMap<>();
        states.forEach((state) -> prints.put(state.key(), state.fingerprint()));
        prints.keySet().retainAll(positions.keySet());
        return new QueryOffset(
            positions, prints, Map.of(), null, true, Map.of(), null, stream, Map.of(), Map.of(), null);
    }

    /** Return the next position of a recording, or null if the offset does not have it. */
    public Long position(final String key)
    {
        if (recordings.containsKey(key))
        {
            return recordings.get(key);
        }
        return done.containsKey(key) ? done.get(key).position() : null;
    }

    /** Return the fingerprint of a recording, or null if the offset does not have it. */
    public String fingerprint(final String key)
    {
        if (fingerprints.containsKey(key))
        {
            return fingerprints.get(key);
        }
        return done.containsKey(key) ? done.get(key).fingerprint() : null;
    }

    /** Return the next positions of all recordings, also of finished ones. */
    public Map<String, Long> positions()
    {
        final Map<String, Long> positions = new LinkedHashMap<>(recordings);
        done.forEach((key, one) -> positions.put(key, one.position()));
        return positions;
    }

    /** Return the archives of its recordings. */
    Set<String> archives()
    {
        return positions().keySet().stream().map(RecordingKey::archive).collect(Collectors.toSet());
    }

    /** Return this offset with the marks of its positions, and the payload, which can be null. */
    QueryOffset completed(final Map<String, Mark> newMarks, final String newPayload)
    {
        return new QueryOffset(
            recordings, fingerprints, done, origin, initial, joined, turn, stream, begins, newMarks, newPayload);
    }

    /** Return this offset with the stream; itself if it has that already. Throws OptionError for another stream. */
    public QueryOffset ofStream(final SourceStream read)
    {
        final SourceStream known = SourceStream.joined(stream, read);
        return known == stream ? this : new QueryOffset(
            recordings, fingerprints, done, origin, initial, joined, turn, known, begins, marks, payload);
    }

    /**
     * Return this offset with the recordings in {@code finished} (key to fingerprint) moved to {@code done}: those that
     * have stopped at the offset's position. Returns this offset if none is new.
     */
    public QueryOffset finish(final Map<String, String> finished)
    {
        final Map<String, Long> left = new LinkedHashMap<>(recordings);
        final Map<String, String> prints = new LinkedHashMap<>(fingerprints);
        final Map<String, Finished> all = new LinkedHashMap<>(done);
        finished.forEach((key, fingerprint) ->
        {
            if (recordings.containsKey(key) && fingerprints.get(key).equals(fingerprint))
            {
                all.put(key, new Finished(left.remove(key), 0, fingerprint));
                prints.remove(key);
            }
        });
        return all.size() == done.size() ? this : new QueryOffset(
            left, prints, all, origin, initial, joined, turn, stream, begins, marks, payload);
    }

    /**
     * Return the offset at which the batch from this one to {@code end} begins. That is this offset, except for the
     * first batch of a query (Spark did not save its start, and requests a later one), for recordings that joined in
     * this batch, and for those in {@code begins}.
     */
    public QueryOffset begin(final QueryOffset end)
    {
        if (equals(end))
        {
            return this;
        }
        final Map<String, Long> positions = new LinkedHashMap<>(recordings);
        final Map<String, String> prints = new LinkedHashMap<>(fingerprints);
        final Map<String, Finished> left = new LinkedHashMap<>(done);
        if (initial)
        {
            // An end without an origin is an initial offset itself, of a first batch without rows.
            positions.clear();
            prints.clear();
            left.clear();
            beginAt(end, end.origin == null ? end.positions() : end.origin, positions, prints, left);
        }
        final Map<String, Long> joining = new LinkedHashMap<>(end.joined);
        // a recording that joined earlier: the batch has nothing of it
        joining.keySet().removeIf((key) -> !initial && Objects.equals(fingerprint(key), end.fingerprint(key)));
        beginAt(end, joining, positions, prints, left);
        beginAt(end, end.begins, positions, prints, left);
        return new QueryOffset(
            positions, prints, left, null, initial, Map.of(), null, null, Map.of(), Map.of(), null);
    }

    /**
     * Return the offset after a batch that ends at {@code positions}, one for each of {@code states}.
     * <p>
     * {@code first} has the batch's first positions if they differ from this offset: after an accepted loss, and in the
     * recordings {@code moved}, of which a repeated batch cannot find them again. {@code finished} are recordings
     * without further complete messages. Deleted recordings, which this offset has and {@code states} has not, become
     * finished, so that a recording that reappears is not read twice. Returns this offset without progress.
     */
    public QueryOffset advance(
        final Map<String, Long> positions,
        final Collection<RecordingState> states,
        final Map<String, Long> first,
        final Collection<String> finished,
        final String nextTurn,
        final Collection<String> moved)
    {
        final Map<String, RecordingState> byKey = new LinkedHashMap<>();
        states.forEach((state) -> byKey.put(state.key(), state));
        final Set<String> removed = new HashSet<>(recordings.keySet());
        removed.removeAll(byKey.keySet());
        if (removed.isEmpty() && states.stream().noneMatch((state) -> hasChanged(state, positions.get(state.key()))))
        {
            return this;
        }
        final Parts parts = new Parts();
        done.forEach((key, one) ->
        {
            if (!byKey.containsKey(key))
            {
                parts.done.put(key, one);
            }
        });
        removed.forEach((key) -> parts.add(key, new Finished(recordings.get(key), 0, fingerprints.get(key)), true));
        final Set<String> same = new HashSet<>();
        final Map<String, Long> joining = new LinkedHashMap<>();
        byKey.forEach((key, state) ->
        {
            final long position = positions.get(key);
            final Finished one = new Finished(position, Math.max(0, state.end() - position), state.fingerprint());
            parts.add(
                key,
                one,
                one.equals(done.get(key)) || !state.isActive() && (finished.contains(key) || one.tail() == 0));
            if (state.fingerprint().equals(fingerprint(key)))
            {
                same.add(key);
            }
            else if (position > state.start())
            {
                joining.put(key, moved.contains(key) ? first.getOrDefault(key, state.start()) : state.start());
            }
        });
        return new QueryOffset(
            parts.recordings,
            parts.fingerprints,
            parts.done,
            initial ? originOf(byKey.keySet(), same, first) : null,
            false,
            joining,
            nextTurn,
            stream,
            initial ? Map.of() : only(first, (key) -> same.contains(key) && moved.contains(key)),
            only(marks, (key) -> same.contains(key) && positions.get(key).equals(position(key))),
            payload);
    }

    private boolean hasChanged(final RecordingState state, final long position)
    {
        final Long old = position(state.key());
        return old == null ?
            position != state.start() :
            position != old || !state.fingerprint().equals(fingerprint(state.key()));
    }

    /** Return the origin of a first batch. A recording that was replaced in it is treated as one that joined. */
    private Map<String, Long> originOf(
        final Set<String> present, final Set<String> same, final Map<String, Long> first)
    {
        final Map<String, Long> found = only(positions(), (key) -> same.contains(key) || !present.contains(key));
        found.putAll(only(first, same::contains));
        return found;
    }

    private static void beginAt(
        final QueryOffset end,
        final Map<String, Long> first,
        final Map<String, Long> positions,
        final Map<String, String> prints,
        final Map<String, Finished> done)
    {
        first.forEach((key, position) ->
        {
            done.remove(key);
            positions.put(key, position);
            prints.put(key, end.fingerprint(key) == null ? "" : end.fingerprint(key));
        });
    }

    private static <T> Map<String, T> only(final Map<String, T> values, final Predicate<String> keys)
    {
        final Map<String, T> found = new LinkedHashMap<>(values);
        found.keySet().removeIf(keys.negate());
        return found;
    }

    /** The positions of an offset that is being made. */
    private static final class Parts
    {
        private final Map<String, Long> recordings = new LinkedHashMap<>();
        private final Map<String, String> fingerprints = new LinkedHashMap<>();
        private final Map<String, Finished> done = new LinkedHashMap<>();

        void add(final String key, final Finished one, final boolean isDone)
        {
            if (isDone && one.isPackable())
            {
                done.put(key, one);
            }
            else
            {
                recordings.put(key, one.position());
                fingerprints.put(key, one.fingerprint());
            }
        }
    }
}
