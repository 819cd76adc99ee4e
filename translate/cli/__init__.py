"""The command line: one thin file per command; heavy imports happen inside the commands."""
