"""Options and output that several verbs share."""
