"""Streams of a server as its clients see them: the log behind a connection, and appending to it by transactions."""
