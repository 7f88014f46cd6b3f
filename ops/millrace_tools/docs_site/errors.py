"""The error that stops the building of the site."""

from millrace.errors import MillraceError


class DocsError(MillraceError):
    """A page can't be laid out, Zensical has found a fault, or a link of the site leads nowhere."""
