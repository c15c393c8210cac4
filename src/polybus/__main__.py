"""`python -m polybus` is the command line."""

from polybus.cli.main import main

main()
