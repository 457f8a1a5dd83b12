"""What several verbs share: options, the printing of answers and tables."""
