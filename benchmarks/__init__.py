"""Scripts that measure bertzoo beside other software, and the renderer of their tables.

`speed`, `phone`, `learning` and `reliability` measure, each script into one JSON file of docs/data; `lib` is what they
share; `python -m benchmarks render` writes the tables of docs/*.md from docs/data.
"""
