"""Compare an exported file with its model and with what a phone computes from it; make rows to test apps with."""
