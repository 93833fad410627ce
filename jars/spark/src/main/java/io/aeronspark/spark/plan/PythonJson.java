package io.aeronspark.spark.plan;

import com.fasterxml.jackson.databind.JsonNode;

import java.math.BigDecimal;
import java.math.MathContext;
import java.util.ArrayList;
import java.util.List;

/** Writes JSON as {@code json.dumps} of Python does, because Spark compares offsets as texts. */
final class PythonJson
{
    private PythonJson()
    {
    }

    /** Return a text in quotation marks; all characters beyond ASCII are escaped. */
    static String quote(final String text)
    {
        final StringBuilder json = new StringBuilder().append('"');
        for (int i = 0; i < text.length(); i++)
        {
            final char one = text.charAt(i);
            switch (one)
            {
                case '"' -> json.append("\\\"");
                case '\\' -> json.append("\\\\");
                case '\n' -> json.append("\\n");
                case '\r' -> json.append("\\r");
                case '\t' -> json.append("\\t");
                case '\f' -> json.append("\\f");
                case '\b' -> json.append("\\b");
                default -> json.append(one < ' ' || one > '~' ? String.format("\\u%04x", (int)one) : one);
            }
        }
        return json.append('"').toString();
    }

    /** Return the text of a value. */
    static String write(final JsonNode value)
    {
        if (value.isObject())
        {
            final List<String> members = new ArrayList<>();
            value.properties().forEach((one) -> members.add(quote(one.getKey()) + ": " + write(one.getValue())));
            return "{" + String.join(", ", members) + "}";
        }
        if (value.isArray())
        {
            final List<String> elements = new ArrayList<>();
            value.forEach((one) -> elements.add(write(one)));
            return "[" + String.join(", ", elements) + "]";
        }
        if (value.isTextual())
        {
            return quote(value.textValue());
        }
        return value.isFloatingPointNumber() ? repr(value.doubleValue()) : value.asText();
    }

    /** Return the shortest digits that a float is read from, as {@code repr} of Python writes them. */
    private static String repr(final double number)
    {
        if (!Double.isFinite(number))
        {
            return Double.isNaN(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
        }
        BigDecimal shortest = new BigDecimal(number);
        for (int digits = 17; digits > 0; digits--)
        {
            final BigDecimal rounded = shortest.round(new MathContext(digits));
            if (rounded.doubleValue() != number)
            {
                break;
            }
            shortest = rounded;
        }
        shortest = shortest.stripTrailingZeros();
        final String sign = number < 0 || 1 / number < 0 ? "-" : "";
        final int exponent = shortest.precision() - shortest.scale() - 1;
        if (number == 0 || exponent >= -4 && exponent < 16)
        {
            final String plain = shortest.abs().toPlainString();
            return sign + plain + (plain.indexOf('.') < 0 ? ".0" : "");
        }
        final String digits = shortest.unscaledValue().abs().toString();
        final String fraction = digits.length() > 1 ? "." + digits.substring(1) : "";
        return sign + digits.charAt(0) + fraction + String.format("e%+03d", exponent);
    }
}
