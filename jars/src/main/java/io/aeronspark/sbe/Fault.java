package io.aeronspark.sbe;

/** Why a message is malformed or not wanted, and where: the last one that a walk met. */
final class Fault
{
    private String text = "";
    private int index;

    /** Store the fault at the byte {@code index} of the batch. Returns -1, for the walk to return. */
    int at(final int index, final String text)
    {
        this.index = index;
        this.text = text;
        return -1;
    }

    String text()
    {
        return text;
    }

    int index()
    {
        return index;
    }
}
