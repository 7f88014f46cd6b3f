"""What keeps the site from being built."""

from millrace.errors import MillraceError


class DocsError(MillraceError):
    """A page can't be laid out, Zensical has found a fault, or a link of the site leads nowhere."""
