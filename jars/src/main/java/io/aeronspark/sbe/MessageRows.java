package io.aeronspark.sbe;

import java.util.Arrays;

/** The rows of a batch: one for each message that is kept, and where it came from. */
final class MessageRows
{
    static final int UNKNOWN = -1;
    static final int CLUSTER_FIELDS = 3;
    private static final int FIRST_CAPACITY = 1024;

    int count;
    /** Whether a column needs more of the rows than their sources. */
    boolean hasDetails;
    /** Index of the value in the batch. */
    int[] sources = new int[FIRST_CAPACITY];
    /** Index of the message in its value. */
    int[] indexes = new int[FIRST_CAPACITY];
    int[] templateIds = new int[FIRST_CAPACITY];
    int[] versions = new int[FIRST_CAPACITY];
    MessageType[] types = new MessageType[FIRST_CAPACITY];
    /** Place and length of a malformed message; the length is {@link #UNKNOWN} for another one. */
    int[] corruptPlaces = new int[FIRST_CAPACITY];
    int[] corruptLengths = new int[FIRST_CAPACITY];
    long corruptBytes;
    /** The fields of the cluster's header for each row, one after the other; only with that framing. */
    long[] clusterFields = new long[0];

    void clear()
    {
        count = 0;
        corruptBytes = 0;
    }

    void add(final int source, final int index, final MessageType type, final int templateId, final int version)
    {
        if (count == sources.length)
        {
            grow(2 * count);
        }
        sources[count] = source;
        if (hasDetails)
        {
            addDetails(index, type, templateId, version);
        }
        count++;
    }

    private void addDetails(final int index, final MessageType type, final int templateId, final int version)
    {
        indexes[count] = index;
        types[count] = type;
        templateIds[count] = templateId;
        versions[count] = version;
        corruptLengths[count] = UNKNOWN;
    }

    void addCorrupt(final int source, final int index, final int place, final int length)
    {
        add(source, index, null, UNKNOWN, UNKNOWN);
        corruptPlaces[count - 1] = place;
        corruptLengths[count - 1] = length;
        corruptBytes += length;
    }

    /** Set the fields of the cluster's header of the last row. */
    void setCluster(final long[] fields)
    {
        final int end = count * CLUSTER_FIELDS;
        if (end > clusterFields.length)
        {
            clusterFields = Arrays.copyOf(clusterFields, sources.length * CLUSTER_FIELDS);
        }
        System.arraycopy(fields, 0, clusterFields, end - CLUSTER_FIELDS, CLUSTER_FIELDS);
    }

    private void grow(final int capacity)
    {
        sources = Arrays.copyOf(sources, capacity);
        indexes = Arrays.copyOf(indexes, capacity);
        types = Arrays.copyOf(types, capacity);
        templateIds = Arrays.copyOf(templateIds, capacity);
        versions = Arrays.copyOf(versions, capacity);
        corruptPlaces = Arrays.copyOf(corruptPlaces, capacity);
        corruptLengths = Arrays.copyOf(corruptLengths, capacity);
    }
}
