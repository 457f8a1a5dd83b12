"""One module a verb of the command line; `cli` says what it must have, and imports only the one that was asked for."""
