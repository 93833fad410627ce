package io.aeronspark.spark.archive;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.aeronspark.spark.error.OptionError;
import io.aeronspark.spark.error.SetupError;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class NodeRecordTest
{
    @TempDir
    private Path home;

    private NodeRecord node(final String aeronDir)
    {
        return new NodeRecord(Map.of("AERON_SPARK_DATA_HOME", home.toString()), "nobody", aeronDir);
    }

    private void write(final String folder, final String file, final String text) throws IOException
    {
        final Path parent = home.resolve("nodes").resolve(folder);
        Files.createDirectories(parent);
        Files.writeString(parent.resolve(file), text);
    }

    /** The folders' names are those of the Python package {@code node}. */
    @Test
    void shouldLookForTheNodeWhereThePythonPackageWritesIt() throws IOException
    {
        for (final String[] names : new String[][]{
            {"/dev/shm/aeron-desk", "aeron-desk-57f56360"},
            {"/dev/shm/a b/\u00dcn\u00efc--", "n-c-0624c2a8"},
            {"/tmp/" + "x".repeat(60), "x".repeat(40) + "-7466341e"},
            {"/dev/shm/.hidden.", "hidden-b2785b9f"},
            {"/dev/shm/aeron-spark-nobody", "default"},
            {"/dev/shm/aeron-spark-nobody-0123456789abcdef", "default"}})
        {
            write(names[1], "claim", "");
            write(names[1], "node.json", "{\"version\": 2}");
            assertTrue(node(names[0]).isOfNode(), names[0]);
            assertThrows(SetupError.class, () -> node(names[0]).find(), names[0]);
        }
    }

    @Test
    void shouldRefuseRelativePathsAndTheRoot()
    {
        final OptionError relative = assertThrows(OptionError.class, () -> node("shm/desk"));
        assertTrue(relative.getMessage().startsWith("aeronDir 'shm/desk' is a relative path, but other processes"));
        assertThrows(OptionError.class, () -> node("/tmp/.."));
    }

    @Test
    void shouldFindNoDriverWhereNoneHasRun()
    {
        assertNull(node(home.resolve("aeron").toString()).find());
        assertFalse(node(home.resolve("aeron").toString()).isOfNode());
        assertTrue(node(null).isOfNode());
        assertEquals(Path.of("/dev/shm/aeron-spark-nobody"), node(null).aeronDir());
    }

    @Test
    void shouldNotTakeTheRecordOfAnEndedProcessForANode() throws IOException
    {
        // No process has this id: it is above the largest one of Linux.
        write("default", "node.json", "{\"version\": 1, \"pid\": 4194305, \"host\": \"h\", \"aeron_dir\": \"/d\"}");
        assertNull(node(null).find());
    }
}
