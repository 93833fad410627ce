"""Real flights through Aeron and Spark into Delta, and back; then through a secure server: ``python -m demo``."""


class Failed(Exception):
    """The demo did not show what it is there to show; the text says why."""
