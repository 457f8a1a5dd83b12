"""Checks of a written file against its model: on sentences, on a task and on a phone; golden rows for apps."""
