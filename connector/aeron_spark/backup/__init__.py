"""Copies the streams of a running server, restores such a copy, and checks a store with its archive for damage.

No module of this package starts a JVM: the archive's files are read as docs/wire-format.md and Aeron's schema say.
"""
