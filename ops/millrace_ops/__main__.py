"""`python -m millrace_ops` is the `millrace` command."""

from millrace_ops.cli.main import main

main()
