"""The one seam: what a reader, a writer, a client and the command line see of a log, and the pure planning over it."""
