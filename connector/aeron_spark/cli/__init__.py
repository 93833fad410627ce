"""The command line: click and rich live here and nowhere else. Each command is loaded when it is called."""
