"""Tasks: read examples from files, encode them as rows, and score predictions. Nothing here needs jax."""
