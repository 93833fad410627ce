package io.aeronspark.spark.option;

import com.fasterxml.jackson.annotation.JsonAutoDetect.Visibility;
import com.fasterxml.jackson.annotation.PropertyAccessor;
import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.aeronspark.spark.channel.AeronUri;
import io.aeronspark.spark.error.OptionError;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Answers cases of options and of channels: the values, or the error. As a program it reads a case from each line of its input, and
 * writes the answer as a line: {@code tests/spark/test_jvm_options.py} compares them with those of Python.
 */
public final class OptionAnswers
{
    static final ObjectMapper JSON =
        JsonMapper.builder(JsonFactory.builder().enable(JsonWriteFeature.ESCAPE_NON_ASCII).build())
            .visibility(PropertyAccessor.ALL, Visibility.NONE)
            .visibility(PropertyAccessor.FIELD, Visibility.ANY)
            .build();

    private OptionAnswers()
    {
    }

    /** Answer the cases of the standard input until its end. */
    public static void main(final String[] args) throws IOException
    {
        final PrintStream output = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
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
            return answer.set("values", question.has("channel") ? channelValues(question) : optionValues(question));
        }
        catch (final OptionError ex)
        {
            answer.putObject("error").put("what", ex.what()).put("remedy", ex.remedy());
            return answer;
        }
    }

    private static JsonNode channelValues(final JsonNode question)
    {
        final String text = question.required("channel").textValue();
        final AeronUri channel =
            question.required("foreign").booleanValue() ? AeronUri.parseForeign(text) : AeronUri.parse(text);
        return JSON.createObjectNode().put("text", channel.toString()).setAll(
            JSON.<ObjectNode>valueToTree(channel.identity()));
    }

    /** Return the options with those of the route among them. */
    private static JsonNode optionValues(final JsonNode question)
    {
        final Map<String, String> options = new LinkedHashMap<>();
        question.required("options").properties().forEach(
            (option) -> options.put(option.getKey(), option.getValue().textValue()));
        final ObjectNode values =
            JSON.valueToTree(ReadOptions.of(options, question.required("streaming").booleanValue()));
        final ObjectNode route = (ObjectNode)values.remove("route");
        return values.setAll(route);
    }
}
