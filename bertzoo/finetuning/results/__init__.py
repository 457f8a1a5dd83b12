"""Fine-tuning runs as rows of the papers' tables, beside the rows that the papers print.

runs.collect(names) -> runs, what is wrong with the others;  layouts.LAYOUTS: the tables by name
rows.table(layout, runs) -> Table;  render.FORMATS: a table as text
"""
