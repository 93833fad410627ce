"""``make bench`` compares this connector with other programs in one run, and writes docs/performance/figures.md."""
