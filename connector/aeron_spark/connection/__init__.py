"""A live connection, the same for client and server: sending, receiving, listeners, calls, streams, and one agent."""
