package io.aeronspark.spark.plan;

import io.aeronspark.spark.channel.AeronUri;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;

/**
 * Values by recording as a text of an offset: for each archive the length and bytes of its name, the number of its
 * recordings, and of each the difference of its id and the value. Numbers have seven bits in each byte; positions and
 * lengths are in units of 32 bytes. Equal values have the same text.
 */
final class Packing
{
    private static final Pattern BASE64 =
        Pattern.compile("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?");
    private static final int MAX_NAME_BYTES = 1024; // of an archive, which is in the key of each of its recordings
    private static final int MAX_VARINT_BITS = 63;
    private static final int FINGERPRINT_BYTES = 4;

    private static final Codec<Finished> FINISHED = new Codec<>()
    {
        @Override
        public void encode(final Finished one, final ByteArrayOutputStream out)
        {
            putVarint(out, one.position() / AeronUri.FRAME_ALIGNMENT);
            putVarint(out, one.tail() / AeronUri.FRAME_ALIGNMENT);
            out.writeBytes(HexFormat.of().parseHex(one.fingerprint()));
        }

        @Override
        public Finished decode(final ByteBuffer in)
        {
            final long position = length(in);
            final long tail = length(in);
            return new Finished(position, tail, HexFormat.of().formatHex(bytes(in, FINGERPRINT_BYTES)));
        }
    };
    private static final Codec<Mark> MARK = new Codec<>()
    {
        @Override
        public void encode(final Mark mark, final ByteArrayOutputStream out)
        {
            putVarint(out, mark.length() / AeronUri.FRAME_ALIGNMENT);
            out.writeBytes(ByteBuffer.allocate(Integer.BYTES).putInt(mark.checksum()).array());
        }

        @Override
        public Mark decode(final ByteBuffer in)
        {
            return new Mark(length(in), ByteBuffer.wrap(bytes(in, Integer.BYTES)).getInt());
        }
    };

    private Packing()
    {
    }

    /** Return finished recordings as a text. All must be packable. */
    static String packFinished(final Map<String, Finished> finished)
    {
        return pack(finished, FINISHED);
    }

    /** Return the recordings of a text. Throws IllegalArgumentException with the cause for other texts. */
    static Map<String, Finished> unpackFinished(final String text)
    {
        return unpack(text, FINISHED);
    }

    /** Return marks as a text. */
    static String packMarks(final Map<String, Mark> marks)
    {
        return pack(marks, MARK);
    }

    /** Return the marks of a text. Throws IllegalArgumentException with the cause for other texts. */
    static Map<String, Mark> unpackMarks(final String text)
    {
        return unpack(text, MARK);
    }

    private interface Codec<T>
    {
        void encode(T value, ByteArrayOutputStream out);

        T decode(ByteBuffer in);
    }

    private static <T> String pack(final Map<String, T> values, final Codec<T> codec)
    {
        values.keySet().forEach(RecordingKey::check);
        final Map<String, T> ordered = new TreeMap<>(RecordingKey.ORDER);
        ordered.putAll(values);
        final Map<String, List<Map.Entry<String, T>>> byArchive = new LinkedHashMap<>();
        ordered.entrySet().forEach((entry) ->
            byArchive.computeIfAbsent(RecordingKey.archive(entry.getKey()), (name) -> new ArrayList<>()).add(entry));
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        byArchive.forEach((archive, members) ->
        {
            final byte[] name = archive.getBytes(StandardCharsets.UTF_8);
            putVarint(out, name.length);
            out.writeBytes(name);
            putVarint(out, members.size());
            long before = 0;
            for (final Map.Entry<String, T> member : members)
            {
                final long id = RecordingKey.id(member.getKey());
                putVarint(out, id - before);
                codec.encode(member.getValue(), out);
                before = id;
            }
        });
        return Base64.getEncoder().encodeToString(out.toByteArray());
    }

    private static <T> Map<String, T> unpack(final String text, final Codec<T> codec)
    {
        if (!BASE64.matcher(text).matches())
        {
            throw new IllegalArgumentException("not base64");
        }
        final ByteBuffer in = ByteBuffer.wrap(Base64.getDecoder().decode(text));
        final Map<String, T> values = new LinkedHashMap<>();
        while (in.hasRemaining())
        {
            final String archive = name(in);
            final long count = varint(in);
            long number = 0;
            for (long i = 0; i < count; i++)
            {
                final long difference = varint(in);
                if (difference > Long.MAX_VALUE - number)
                {
                    throw new IllegalArgumentException("not valid: a recording's id is too large");
                }
                number += difference;
                values.put(RecordingKey.of(archive, number), codec.decode(in));
            }
        }
        // Equal values must have only one text, because offsets are compared as texts.
        if (!pack(values, codec).equals(text))
        {
            throw new IllegalArgumentException("not in canonical form");
        }
        return values;
    }

    private static String name(final ByteBuffer in)
    {
        final long length = varint(in);
        if (length > MAX_NAME_BYTES)
        {
            throw new IllegalArgumentException("not valid: an archive's name has " + length + " bytes");
        }
        try
        {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes(in, (int)length))).toString();
        }
        catch (final CharacterCodingException ex)
        {
            throw new IllegalArgumentException("not valid: an archive's name is not UTF-8");
        }
    }

    private static void putVarint(final ByteArrayOutputStream out, final long number)
    {
        long left = number;
        while (left > 0x7F)
        {
            out.write((int)(left & 0x7F | 0x80));
            left >>= 7;
        }
        out.write((int)left);
    }

    private static long varint(final ByteBuffer in)
    {
        long number = 0;
        for (int shift = 0; shift < MAX_VARINT_BITS; shift += 7)
        {
            final byte next = bytes(in, 1)[0];
            number |= (next & 0x7FL) << shift;
            if (next >= 0)
            {
                return number;
            }
        }
        throw new IllegalArgumentException("not valid: a number is too long");
    }

    private static long length(final ByteBuffer in)
    {
        final long number = varint(in);
        if (number > Long.MAX_VALUE / AeronUri.FRAME_ALIGNMENT)
        {
            throw new IllegalArgumentException("not valid: a position is too large");
        }
        return number * AeronUri.FRAME_ALIGNMENT;
    }

    private static byte[] bytes(final ByteBuffer in, final int count)
    {
        if (count > in.remaining())
        {
            throw new IllegalArgumentException("truncated");
        }
        final byte[] bytes = new byte[count];
        in.get(bytes);
        return bytes;
    }
}
