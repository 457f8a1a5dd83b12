"""Fine-tuning runs as rows of the papers' tables, beside the rows that the papers print.

runs.collect_runs(names) -> finished runs, errors of others;  layouts.PAPER_TABLES: the tables by name
rows.build_table(layout, runs) -> ResultTable;  render.FORMATS: functions that write it as text
"""
