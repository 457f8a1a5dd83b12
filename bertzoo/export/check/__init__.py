"""Compare an exported file with its model on sentences, on its task and on a phone; make rows to test apps with."""
