"""The options of a running server, which a reload replaces. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from aeron_spark.options.server_options import ServerOptions


@dataclass(frozen=True, slots=True)
class OptionChanges:
    """The names of the options that changed and apply now, and of those that need a restart; ``bind`` for addresses."""

    changed: tuple[str, ...] = ()
    restart_needed: tuple[str, ...] = ()


class LiveOptions:
    """The options that apply now. A part that needs one reads it from ``value`` at each use.

    Changed limits of clients, streams and stages apply to further ones, all other live options also to present ones.
    Thread-safe; one thread at a time replaces them.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.value = options
        """The present options: those of the start, with the live ones of the last reload."""
        self.restart_needed: tuple[str, ...] = ()
        """The options that the last reload found changed, and that need a restart."""
        self.on_replaced: Callable[[], object] = lambda: None
        """Called after a replacement, for the one part that cannot read them at each use: Python's logging."""

    def compare(self, configured: ServerOptions) -> OptionChanges:
        """Return what ``replace`` would return. Raises OptionError for values that contradict the running ones."""
        return self._changed(configured)[1]

    def replace(self, configured: ServerOptions) -> OptionChanges:
        """Apply the live options of a configuration, and return what differs. Raises as ``compare``."""
        self.value, changes = self._changed(configured)
        self.restart_needed = changes.restart_needed
        self.on_replaced()
        return changes

    def _changed(self, configured: ServerOptions) -> tuple[ServerOptions, OptionChanges]:
        running, declared = self.value, ServerOptions.options()
        live = {field: getattr(configured, field) for field, option in declared.items() if option.live}
        differing = [
            option
            for field, option in declared.items()
            if field != "bind" and getattr(running, field) != getattr(configured, field)
        ]
        restarting = [option.name for option in differing if not option.live]
        if running.addresses != configured.addresses:
            restarting.append("bind")
        changed = sorted(option.name for option in differing if option.live)
        return replace(running, **live), OptionChanges(tuple(changed), tuple(sorted(restarting)))
