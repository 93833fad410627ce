package io.aeronspark.spark.archive;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.aeron.CncFileDescriptor;
import io.aeron.CommonContext;
import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.error.PythonText;
import io.aeronspark.spark.error.SetupError;
import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

/**
 * The node of a media driver's directory, as the node process describes it in a file, and the places of its files. The
 * rules are those of the Python package {@code node}.
 */
final class NodeRecord
{
    private static final int VERSION = 1;
    private static final long DRIVER_TIMEOUT_MS = TimeUnit.SECONDS.toMillis(10);
    private static final int MAX_NAME = 40;
    private static final Pattern UNREADABLE = Pattern.compile("[^A-Za-z0-9._-]+");

    private final Map<String, String> environment;
    private final Path folder;
    private final Path aeronDir;
    private final boolean isNamed;
    private final boolean isStandard;

    /** A media driver that runs, with the archive's folder, or "" if another program has started it. */
    record Driver(String aeronDir, String archiveDir)
    {
    }

    /**
     * @param named directory of the media driver, or null for the default one.
     */
    NodeRecord(final Map<String, String> environment, final String user, final String named)
    {
        this.environment = environment;
        final Path standard = Path.of("/dev/shm/aeron-spark-" + user);
        final String set = environment.get("AERON_SPARK_AERON_DIR");
        final Path configured = set == null || set.isEmpty() ? standard : absolute("AERON_SPARK_AERON_DIR", set);
        aeronDir = named == null ? configured : absolute("aeronDir", named);
        isNamed = !aeronDir.equals(configured);
        // Of a name that another user has taken, this user's directory has a suffix.
        isStandard =
            aeronDir.toString().matches(Pattern.quote(standard.toString()) + "(-[0-9a-f]{16})?");
        folder = dataHome().resolve("nodes").resolve(isStandard ? "default" : folderName(aeronDir));
    }

    /** Directory of the media driver, if no node says another one. */
    Path aeronDir()
    {
        return aeronDir;
    }

    /** Whether a node may be started there: in the default directory, and where one was started before. */
    boolean isOfNode()
    {
        return !isNamed || Files.exists(folder.resolve("claim"));
    }

    /** Return the running driver, or null. */
    Driver find()
    {
        final JsonNode record = read();
        final long nodePid = record == null ? 0 : record.path("pid").asLong();
        if (record != null && isRunning(nodePid))
        {
            checkHost(record.path("host").asText());
            final Driver driver = new Driver(record.path("aeron_dir").asText(), record.path("archive_dir").asText());
            if (isActive(driver.aeronDir))
            {
                return driver;
            }
        }
        // A driver that was killed seems to be active for some seconds.
        final boolean isForeign = isActive(aeronDir.toString()) && driverPid() != nodePid;
        if (!isForeign)
        {
            return null;
        }
        requireUsable();
        return new Driver(aeronDir.toString(), "");
    }

    /**
     * A directory that the caller chose can be of another user, such as a container's. The default directory must be of
     * this user, because any user could create it.
     */
    private void requireUsable()
    {
        final Path cnc = aeronDir.resolve(CncFileDescriptor.CNC_FILE);
        final Object owner = owner(aeronDir);
        final Object user = owner(Path.of("/proc/self"));
        if (isStandard && !Objects.equals(owner, user))
        {
            throw new SetupError(
                "the directory " + aeronDir + " belongs to user " + owner + ", not to user " + user,
                "Name a directory of your own (aeronDir or AERON_SPARK_AERON_DIR), or run as its owner.");
        }
        if (!Files.isReadable(cnc) || !Files.isWritable(cnc))
        {
            throw new SetupError(
                "the media driver in " + aeronDir + " belongs to another user and cannot be written",
                "Run as its owner, let its owner grant access, or name a directory of your own.");
        }
    }

    private static Object owner(final Path path)
    {
        try
        {
            return Files.getAttribute(path, "unix:uid");
        }
        catch (final IOException ex)
        {
            throw new UncheckedIOException(ex);
        }
    }

    private static Path absolute(final String option, final String text)
    {
        final Path path = Path.of(text).normalize();
        if (!path.isAbsolute())
        {
            throw new OptionError(
                option + " " + PythonText.repr(text) + " is a relative path, but other processes have other working " +
                "directories",
                "Give the absolute path, such as /dev/shm/aeron-prices.");
        }
        if (path.equals(path.getRoot()))
        {
            throw new OptionError(option + " cannot be the root directory", "Name a separate directory.");
        }
        return path;
    }

    private JsonNode read()
    {
        final Path file = folder.resolve("node.json");
        try
        {
            final JsonNode record = new ObjectMapper().readTree(Files.readString(file));
            if (record.path("version").asInt() != VERSION)
            {
                throw new SetupError(
                    "the node described in " + file + " was started by another version of aeron-spark",
                    "Stop it with that version ('aeron-spark node stop'), then try again.");
            }
            return record;
        }
        catch (final NoSuchFileException ignored)
        {
            return null;
        }
        catch (final IOException ex)
        {
            throw new SetupError(file + " cannot be read: " + ex.getMessage(), "Stop the node, then try again.", ex);
        }
    }

    private void checkHost(final String host)
    {
        final String own = Hosts.name();
        if (!host.equals(own))
        {
            throw new SetupError(
                "the folder " + folder + " is used by a node on the host " + host,
                "Set AERON_SPARK_DATA_HOME to a local disk: two machines cannot share a node's folder.");
        }
    }

    private Path dataHome()
    {
        final String own = environment.getOrDefault("AERON_SPARK_DATA_HOME", "");
        if (!own.isEmpty())
        {
            return Path.of(own).toAbsolutePath().normalize();
        }
        final String xdg = environment.getOrDefault("XDG_DATA_HOME", "");
        if (!xdg.isEmpty())
        {
            return Path.of(xdg).toAbsolutePath().normalize().resolve("aeron-spark");
        }
        final String home = environment.getOrDefault("HOME", "");
        return Path.of(home.isEmpty() ? System.getProperty("user.home") : home, ".local/share", "aeron-spark");
    }

    private long driverPid()
    {
        try (RandomAccessFile cnc = new RandomAccessFile(aeronDir.resolve(CncFileDescriptor.CNC_FILE).toFile(), "r"))
        {
            cnc.seek(CncFileDescriptor.PID_FIELD_OFFSET);
            final long pid = cnc.readLong();
            return ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN ? Long.reverseBytes(pid) : pid;
        }
        catch (final IOException ignored)
        {
            return 0; // The driver has ended meanwhile.
        }
    }

    /** A process that has ended exists until its parent has asked for its end. */
    private static boolean isRunning(final long pid)
    {
        final boolean isKnown = ProcessHandle.of(pid).map(ProcessHandle::isAlive).orElse(false);
        try
        {
            final String stat = Files.readString(Path.of("/proc/" + pid + "/stat"));
            return isKnown && !stat.substring(stat.lastIndexOf(')') + 1).strip().startsWith("Z");
        }
        catch (final IOException ignored)
        {
            return isKnown && !Files.exists(Path.of("/proc/self/stat")); // A system without these files.
        }
    }

    private static boolean isActive(final String aeronDir)
    {
        return CommonContext.isDriverActive(new File(aeronDir), DRIVER_TIMEOUT_MS, (ignored) ->
        {
        });
    }

    private static String folderName(final Path directory)
    {
        final Path last = directory.getFileName();
        String readable = UNREADABLE.matcher(last == null ? "" : last.toString()).replaceAll("-");
        readable = readable.replaceAll("^[-.]+|[-.]+$", "");
        readable = readable.isEmpty() ? "node" : readable;
        readable = readable.substring(0, Math.min(MAX_NAME, readable.length()));
        return readable + "-" + digest(directory.toString()).substring(0, 8);
    }

    private static String digest(final String text)
    {
        try
        {
            final MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
            return HexFormat.of().formatHex(sha256.digest(text.getBytes(StandardCharsets.UTF_8)));
        }
        catch (final NoSuchAlgorithmException ex)
        {
            throw new IllegalStateException(ex);
        }
    }
}
