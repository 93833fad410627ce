"""Named streams on the server: durable, partitioned, written in transactions. A journal is the truth of each."""
