"""The command line: the commands, their options and their output."""
