"""The demo (``python -m demo``): flights through Aeron and Spark into Delta and back, then through a server."""


class DemoError(Exception):
    """A step of the demo failed or gave a wrong result; the text has the reason."""
