"""``make bench`` measures this connector against real peers, in one run, and writes docs/performance.md."""
