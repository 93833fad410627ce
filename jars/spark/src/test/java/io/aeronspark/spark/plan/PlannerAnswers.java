package io.aeronspark.spark.plan;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.aeronspark.spark.error.AeronSparkError;
import io.aeronspark.spark.error.PythonText;
import io.aeronspark.spark.option.ReadOptions;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Answers cases of planning. As a program it reads a case from each line of its input, and writes the answer as a line:
 * {@code tests/spark/test_jvm_planner.py} compares them with those of Python.
 */
public final class PlannerAnswers
{
    static final ObjectMapper JSON = new ObjectMapper();

    private PlannerAnswers()
    {
    }

    /** Answer the cases of the standard input until its end. */
    public static void main(final String[] args) throws IOException
    {
        final PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        final BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine())
        {
            output.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            output.flush();
        }
    }

    static JsonNode answer(final JsonNode question)
    {
        final ObjectNode answer = JSON.createObjectNode();
        try
        {
            return switch (question.required("do").textValue())
            {
                case "mark" -> answer.set("mark", mark(question));
                case "end" -> answer.set("end", end(question));
                case "query" -> answer.set("answers", new QueryRun(question).answers(question.required("steps")));
                default -> offset(question, answer);
            };
        }
        catch (final RuntimeException ex)
        {
            if (!(ex instanceof AeronSparkError error))
            {
                throw ex;
            }
            return putError(answer, error);
        }
    }

    private static ObjectNode putError(final ObjectNode answer, final AeronSparkError error)
    {
        answer.putObject("error").put("class", error.getClass().getSimpleName())
            .put("what", error.what()).put("remedy", error.remedy());
        return answer;
    }

    /** Answer with the text of an offset, and whether it is the one that the case began with. */
    private static JsonNode offset(final JsonNode question, final ObjectNode answer)
    {
        final QueryOffset start =
            question.has("start") ? OffsetJson.parse(question.required("start").textValue()) : null;
        final QueryOffset offset = switch (question.required("do").textValue())
        {
            case "parse" -> start;
            case "first" -> QueryOffset.first(positions(question, "positions"), states(question), stream(question));
            case "begin" -> start.begin(OffsetJson.parse(question.required("end").textValue()));
            case "ofStream" -> start.ofStream(stream(question));
            case "finish" -> start.finish(prints(question.required("finished")));
            case "advance" -> start.advance(
                positions(question, "positions"),
                states(question),
                positions(question, "begins"),
                texts(question.required("finished")),
                question.required("turn").textValue(),
                texts(question.required("moved")));
            default -> throw new IllegalStateException(question.toString());
        };
        return answer.put("text", OffsetJson.write(offset)).put("same", offset == start);
    }

    /** Answer with the mark of a position in a log that begins at 0, and whether another log is rewritten there. */
    private static JsonNode mark(final JsonNode question)
    {
        final RecordingState state = states(question).get(0);
        final long position = question.required("position").longValue();
        final Mark mark = Mark.before(log(question.required("log")), state, position);
        return mark == null ? JSON.nullNode() : JSON.createArrayNode()
            .add(mark.length())
            .add(Integer.toUnsignedLong(mark.checksum()))
            .add(mark.isRewritten(log(question.required("later")), state, position));
    }

    /** Answer with the end of a batch; {@code messages} has the end of each message by recording. */
    private static JsonNode end(final JsonNode question)
    {
        final BatchEnd end = BatchEnd.plan(
            positions(question, "positions"),
            states(question),
            texts(question.required("wanted")),
            (state, start, limit, last, maxRows) ->
                boundary(question.required("messages").required(state.key()), start, limit, last, maxRows),
            number(question.required("maxBytes")),
            number(question.required("maxRows")),
            question.required("turn").textValue());
        final ObjectNode answer = JSON.createObjectNode().put("turn", end.turn());
        answer.set("positions", JSON.valueToTree(end.positions()));
        answer.set("finished", JSON.valueToTree(end.finished().stream().sorted(PythonText::compare).toList()));
        return answer;
    }

    private static Boundary boundary(
        final JsonNode ends, final long start, final long limit, final long end, final long maxRows)
    {
        long position = start;
        int rows = 0;
        for (final JsonNode one : ends)
        {
            final long next = one.longValue();
            final boolean isFirst = rows == 0;
            if (next > start && next <= end && (isFirst || next <= limit && (maxRows < 0 || rows < maxRows)))
            {
                position = next;
                rows++;
            }
        }
        return new Boundary(position, rows);
    }

    private static Long number(final JsonNode value)
    {
        return value.isNull() ? null : Long.valueOf(value.longValue());
    }

    private static RecordedBytes log(final JsonNode hex)
    {
        final byte[] bytes = HexFormat.of().parseHex(hex.textValue());
        return (state, position, length) -> position + length > bytes.length ?
            null : Arrays.copyOfRange(bytes, (int)position, (int)position + length);
    }

    private static SourceStream stream(final JsonNode question)
    {
        return SourceStream.of(question.required("channel").textValue(), question.required("streamId").intValue());
    }

    private static List<RecordingState> states(final JsonNode question)
    {
        final List<RecordingState> states = new ArrayList<>();
        question.required("states").forEach((state) -> states.add(new RecordingState(
            state.required("key").textValue(),
            state.required("fingerprint").textValue(),
            state.required("start").longValue(),
            state.required("end").longValue(),
            state.required("active").booleanValue(),
            state.required("termLength").intValue(),
            0,
            state.required("mtu").intValue(),
            0,
            0,
            "",
            0,
            Long.MAX_VALUE)));
        return states;
    }

    private static Map<String, Long> positions(final JsonNode question, final String name)
    {
        final Map<String, Long> positions = new LinkedHashMap<>();
        question.required(name).properties().forEach(
            (one) -> positions.put(one.getKey(), one.getValue().longValue()));
        return positions;
    }

    private static Map<String, String> prints(final JsonNode object)
    {
        final Map<String, String> prints = new LinkedHashMap<>();
        object.properties().forEach((one) -> prints.put(one.getKey(), one.getValue().textValue()));
        return prints;
    }

    private static List<String> texts(final JsonNode array)
    {
        final List<String> texts = new ArrayList<>();
        array.forEach((text) -> texts.add(text.textValue()));
        return texts;
    }

    /** A run of a streaming query. */
    private static final class QueryRun
    {
        private final ArrayNode warned = JSON.createArrayNode();
        private final StreamPlanner planner;
        private long now;

        QueryRun(final JsonNode question)
        {
            final Map<String, String> options = new LinkedHashMap<>();
            question.required("options").properties().forEach(
                (one) -> options.put(one.getKey(), one.getValue().textValue()));
            now = question.required("now").longValue();
            planner = new StreamPlanner(
                ReadOptions.of(options, true), () -> now, (finding) -> warned.add(finding.sentence()));
        }

        /** Answer each step: the operation of the planner on a log at a time. */
        ArrayNode answers(final JsonNode steps)
        {
            final ArrayNode answers = JSON.createArrayNode();
            for (final JsonNode step : steps)
            {
                final ObjectNode answer = answers.addObject();
                warned.removeAll();
                now = step.required("now").longValue();
                try
                {
                    answer(step, new FramedLog(step.required("log")), answer);
                }
                catch (final RuntimeException ex)
                {
                    if (!(ex instanceof AeronSparkError error))
                    {
                        throw ex;
                    }
                    putError(answer, error);
                }
                answer.set("warned", warned.deepCopy());
            }
            return answers;
        }

        private void answer(final JsonNode step, final Log log, final ObjectNode answer)
        {
            final QueryOffset start =
                step.has("start") ? OffsetJson.parse(step.required("start").textValue()) : null;
            switch (step.required("do").textValue())
            {
                case "initial" -> answer.put("text", OffsetJson.write(planner.initial(log)));
                case "availableNow" -> planner.prepareAvailableNow(log);
                case "latest" ->
                {
                    final QueryOffset end = planner.latest(log, start, step.required("limited").booleanValue());
                    answer.put("text", OffsetJson.write(end)).put("same", end == start)
                        .put("report", planner.report());
                }
                default ->
                {
                    final QueryOffset end = OffsetJson.parse(step.required("end").textValue());
                    final List<Range> found = planner.between(log, start, end);
                    final ArrayNode ranges = answer.putArray("ranges");
                    found.forEach((range) -> put(range, ranges.addArray()));
                }
            }
        }

        private static void put(final Range range, final ArrayNode values)
        {
            values.add(range.key()).add(range.fingerprint()).add(range.start()).add(range.end())
                .add(range.batchEnd()).add(range.termLength());
            final Mark mark = range.mark();
            values.add(mark == null ? JSON.nullNode() : JSON.createArrayNode()
                .add(mark.length()).add(Integer.toUnsignedLong(mark.checksum())));
        }
    }

    /** A log with {@code [length, content]} of the frames of each recording; {@code MemoryLog} in Python. */
    private static final class FramedLog implements Log
    {
        private static final int BLOCK = 32;

        private final JsonNode log;

        FramedLog(final JsonNode log)
        {
            this.log = log;
        }

        @Override
        public List<String> archives()
        {
            return texts(log.required("archives"));
        }

        @Override
        public List<RecordingState> states()
        {
            final List<RecordingState> states = new ArrayList<>();
            log.required("recordings").forEach((one) -> states.add(new RecordingState(
                one.required("key").textValue(),
                one.required("fingerprint").textValue(),
                one.required("start").longValue(),
                one.required("end").longValue(),
                one.required("active").booleanValue(),
                one.required("termLength").intValue(),
                one.required("initialTermId").intValue(),
                one.required("mtu").intValue(),
                1001,
                one.required("sessionId").intValue(),
                "aeron:ipc",
                one.required("startTimestamp").longValue(),
                one.required("stopTimestamp").isNull() ? Long.MAX_VALUE : one.required("stopTimestamp").longValue())));
            return states;
        }

        private JsonNode recording(final RecordingState state)
        {
            for (final JsonNode one : log.required("recordings"))
            {
                if (state.key().equals(one.required("key").textValue()))
                {
                    return one;
                }
            }
            throw new IllegalStateException(state.key());
        }

        @Override
        public RecordingState find(final String key)
        {
            throw new UnsupportedOperationException();
        }

        @Override
        public void checkRecorded(final List<RecordingState> states)
        {
            throw new UnsupportedOperationException();
        }

        @Override
        public Object run()
        {
            return "";
        }

        @Override
        public boolean isRecorded()
        {
            return true;
        }

        @Override
        public void startRecording(final ReadOptions options, final boolean wasRecorded)
        {
            throw new UnsupportedOperationException();
        }

        @Override
        public List<Message> messages(final RecordingState state, final long begin, final long end)
        {
            final List<Message> found = new ArrayList<>();
            long at = 0;
            for (final JsonNode frame : recording(state).required("frames"))
            {
                final int content = frame.required(1).intValue();
                if (at >= begin && at < end)
                {
                    final ByteBuffer value = ByteBuffer.allocate(Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
                    found.add(new Message(at, value.putInt(content).array(), content));
                }
                at += frame.required(0).longValue();
            }
            return found;
        }

        @Override
        public Boundary boundary(
            final RecordingState state, final long start, final long limit, final long end, final long maxRows)
        {
            final ArrayNode ends = JSON.createArrayNode();
            long at = 0;
            for (final JsonNode frame : recording(state).required("frames"))
            {
                at += frame.required(0).longValue();
                ends.add(at);
            }
            return PlannerAnswers.boundary(ends, start, limit, end, maxRows);
        }

        @Override
        public byte[] recordedBytes(final RecordingState state, final long position, final int length)
        {
            if (!recording(state).required("files").booleanValue() || position < state.start() ||
                position + length > state.end())
            {
                return null;
            }
            final ByteBuffer bytes = ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
            long at = 0;
            for (final JsonNode frame : recording(state).required("frames"))
            {
                final long frameEnd = at + frame.required(0).longValue();
                for (; at < frameEnd; at += BLOCK)
                {
                    for (int i = 0; at >= position && at < position + length && i < BLOCK; i += 2 * Integer.BYTES)
                    {
                        bytes.putInt(frame.required(1).intValue()).putInt((int)(at / BLOCK));
                    }
                }
            }
            return bytes.array();
        }
    }
}
