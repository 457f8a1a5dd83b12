"""A model as a phone runs it: the export graph, what is rewritten in it, and the targets that it is written for."""
