"""Check a written file against its model, on sentences, a task and a phone; make rows to test apps with."""
