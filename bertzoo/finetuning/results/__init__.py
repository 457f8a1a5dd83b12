"""Compare fine-tuning runs with papers: tables in a paper's layout, with rows of the paper and of the runs.

runs.collect_runs(names) -> finished runs, errors of other runs;  layouts.PAPER_TABLES: layouts by name
rows.build_table(layout, runs) -> ResultTable;  render.FORMATS: functions that write a ResultTable as text
"""
