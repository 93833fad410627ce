package io.aeronspark.spark.option;

import io.aeronspark.spark.error.OptionError;

import java.io.Serializable;
import java.util.List;
import java.util.Map;

/**
 * The options of a reader, each with its name, times in nanoseconds. An option without a default is null if it is not
 * given. {@code queryName} is that of a streaming query, or "". {@code ignored} has the names of given options without
 * an effect here, of which the caller warns. Immutable.
 */
public record ReadOptions(
    boolean streaming,
    DirectRoute route,
    String queryName,
    List<String> ignored,
    String sbeSchema,
    List<String> sbeMessage,
    DecimalColumns sbeDecimals,
    TimeColumns sbeTimes,
    String sbeEnums,
    String sbeSets,
    String sbeOthers,
    String sbeMode,
    String sbeFraming,
    String sbeTable,
    String payload,
    WantedOffsets startingOffsets,
    Moment startingTimestamp,
    TimestampFrom timestampFrom,
    WantedOffsets endingOffsets,
    Moment endingTimestamp,
    Long startPosition,
    Long endPosition,
    List<Integer> sessionIds,
    boolean pushdown,
    String readPath,
    Long maxBytesPerTrigger,
    Long maxRowsPerTrigger,
    Long minBytesPerTrigger,
    long maxTriggerDelayNs,
    Integer minPartitions,
    boolean failOnDataLoss,
    String record,
    boolean includeMetadata,
    long idleTimeoutNs) implements Serializable
{
    private static final long MAX_BATCH_BYTES = 1L << 30;
    private static final long MAX_AVAILABLE_NOW_BYTES = 4L << 30;

    /**
     * Parse the options that Spark passes to a reader.
     *
     * @throws OptionError for the first wrong option, in the order of the map and then of the declarations.
     */
    public static ReadOptions of(final Map<String, String> options, final boolean streaming)
    {
        final OptionReader reader = new OptionReader(options, streaming ? Where.READ_STREAM : Where.READ_BATCH);
        final DirectRoute route = DirectRoute.read(reader);
        for (final String edge : List.of("start", "end"))
        {
            if (reader.contains(edge + "ingTimestamp") && reader.contains(edge + "ingOffsets"))
            {
                throw new OptionError(
                    "options '" + edge + "ingTimestamp' and '" + edge + "ingOffsets' both set the " + edge +
                    " of the read",
                    "Give only one of them.");
            }
        }
        final ReadOptions read = new ReadOptions(
            streaming,
            route,
            queryName(options),
            reader.givenOptions().stream()
                .filter((option) -> option.isIgnoredIn(reader.where())).map(Option::name).toList(),
            reader.value("sbeSchema", OptionTypes::text),
            reader.value("sbeMessage", OptionTypes::messages),
            reader.value("sbeDecimals", OptionTypes::decimals),
            reader.value("sbeTimes", OptionTypes::times),
            reader.value("sbeEnums", OptionTypes::choice),
            reader.value("sbeSets", OptionTypes::choice),
            reader.value("sbeOthers", OptionTypes::choice),
            reader.value("sbeMode", OptionTypes::choice),
            reader.value("sbeFraming", OptionTypes::choice),
            reader.value("sbeTable", OptionTypes::text),
            reader.value("payload", OptionTypes::choice),
            reader.value("startingOffsets", OffsetsParser::starting),
            reader.value("startingTimestamp", OptionTypes::moment),
            reader.value("timestampFrom", OptionTypes::timestampFrom),
            reader.value("endingOffsets", OffsetsParser::ending),
            reader.value("endingTimestamp", OptionTypes::moment),
            reader.value("startPosition", OptionTypes::whole),
            reader.value("endPosition", OptionTypes::whole),
            reader.value("sessionIds", OptionTypes::sessionIds),
            reader.value("pushdown", OptionTypes::flag),
            reader.value("readPath", OptionTypes::choice),
            reader.value("maxBytesPerTrigger", OptionTypes::size),
            reader.value("maxRowsPerTrigger", OptionTypes::whole),
            reader.value("minBytesPerTrigger", OptionTypes::size),
            reader.value("maxTriggerDelay", OptionTypes::duration),
            reader.value("minPartitions", OptionTypes::int32),
            reader.value("failOnDataLoss", OptionTypes::flag),
            reader.value("record", OptionTypes::choice),
            reader.value("includeMetadata", OptionTypes::flag),
            reader.value("idleTimeout", OptionTypes::duration));
        read.checkOffsets();
        read.checkTimestamp("startingTimestamp", read.startingTimestamp, reader);
        read.checkTimestamp("endingTimestamp", read.endingTimestamp, reader);
        read.checkBounds();
        read.checkReadPath();
        read.checkLimits();
        read.checkSbe(reader);
        return read;
    }

    /**
     * Parse options of which it is not known yet whether a batch or a streaming query reads.
     *
     * @throws OptionError for what both refuse.
     */
    public static ReadOptions ofAnyRead(final Map<String, String> options)
    {
        try
        {
            return of(options, true);
        }
        catch (final OptionError ofStream)
        {
            try
            {
                return of(options, false);
            }
            catch (final OptionError ofBatch)
            {
                // An option that only a batch has means a batch.
                throw options.keySet().stream().anyMatch(OptionTable.INSTANCE::isForBatchReadsOnly) ? ofBatch : ofStream;
            }
        }
    }

    /** The bounds of a batch read; a streaming read has none. */
    public Bounds bounds()
    {
        return new Bounds(startPosition, endPosition, sessionIds == null ? List.of() : sessionIds);
    }

    /** The limits of micro-batches; a batch read has none. */
    public BatchLimits limits()
    {
        if (!streaming)
        {
            return BatchLimits.NONE;
        }
        final Long given = maxBytesPerTrigger;
        return new BatchLimits(
            given == null ? Long.valueOf(MAX_BATCH_BYTES) : given,
            given == null ? Long.valueOf(MAX_AVAILABLE_NOW_BYTES) : given,
            maxRowsPerTrigger,
            minBytesPerTrigger,
            maxTriggerDelayNs);
    }

    private static String queryName(final Map<String, String> options)
    {
        for (final Map.Entry<String, String> option : options.entrySet())
        {
            final String value = option.getValue();
            if ("queryname".equals(OptionTable.lower(option.getKey())) && value != null && !value.isEmpty())
            {
                return value;
            }
        }
        return "";
    }

    private void checkOffsets()
    {
        if (!streaming && startingOffsets.has(WantedOffsets.LATEST))
        {
            throw new OptionError(
                "option 'startingOffsets' is 'latest' in a batch, which would read nothing",
                "Start a batch at 'earliest' or at positions, or read with spark.readStream.");
        }
        if (endingOffsets.has(WantedOffsets.EARLIEST))
        {
            throw new OptionError(
                "option 'endingOffsets' is 'earliest', which would read nothing",
                "End a batch at 'latest' or at positions.");
        }
    }

    private void checkTimestamp(final String name, final Moment time, final OptionReader reader)
    {
        if (time != null && timestampFrom == null && ("raw".equals(payload) || "sbe".equals(payload)))
        {
            throw new OptionError(
                "option '" + name + "' needs 'timestampFrom' for a '" + payload + "' stream, whose messages " +
                "have no standard publish time",
                reader.option("timestampFrom").sentence());
        }
    }

    private void checkBounds()
    {
        if (startPosition != null && endPosition != null && startPosition >= endPosition)
        {
            throw new OptionError(
                "option 'startPosition' (" + startPosition + ") is not before 'endPosition' (" + endPosition + ")",
                "Give a start position below the end position.");
        }
    }

    private void checkReadPath()
    {
        for (final String archive : route.archive())
        {
            if ("files".equals(readPath) && !OptionTypes.EMBEDDED.equals(archive))
            {
                throw new OptionError(
                    "option 'readPath' is 'files', but only the files of archive=embedded can be read, not those of " +
                    "the archive " + archive,
                    "Use archive=embedded, or readPath=auto, which replays from other archives.");
            }
        }
    }

    private void checkLimits()
    {
        final BatchLimits limits = limits();
        if (limits.maxBytes() != null && limits.minBytes() != null && limits.minBytes() > limits.maxBytes())
        {
            throw new OptionError(
                "option 'minBytesPerTrigger' (" + limits.minBytes() + ") is above 'maxBytesPerTrigger' (" +
                limits.maxBytes() + ")",
                "Lower 'minBytesPerTrigger', or raise 'maxBytesPerTrigger'.");
        }
    }

    private void checkSbe(final OptionReader reader)
    {
        final List<String> given = reader.givenOptions().stream().filter(Option::isSbe).map(Option::name).toList();
        if (!"sbe".equals(payload))
        {
            if (!given.isEmpty())
            {
                throw new OptionError(
                    "option '" + given.get(0) + "' is only for payload=sbe, and 'payload' is '" + payload + "'",
                    "Add .option('payload', 'sbe'), on the command line --payload sbe, or leave the option out.");
            }
            return;
        }
        if (sbeTable == null && sbeSchema == null)
        {
            throw new OptionError(
                "option 'payload' is 'sbe', and 'sbeSchema' is missing",
                reader.option("sbeSchema").sentence() + "; on the command line --sbe-schema FILE");
        }
        for (final String name : given)
        {
            if (sbeTable != null && !"sbeTable".equals(name))
            {
                throw new OptionError(
                    "option 'sbeTable' is a compiled schema with its settings, and '" + name + "' is one of them",
                    "Leave one of them out, or compile the table with this setting.");
            }
        }
    }
}
