"""Tasks: read examples from files, encode them as rows, and score predictions. Nothing here needs jax.

A task with labels, numbers or word tags; `outputs` are the model's, one array for each batch:

    task = GLUE["cola"]  # glue.py; custom.py: CustomFiles(train="a.csv").task(directory), for the user's own files
    split = task.read("train", directory); split.examples, split.skipped  # task.py
    rows = encode(split.examples, tokenizer, 128, task.kind)  # encode.py: at most 128 tokens per row
    lengths = bucket_lengths([rows], buckets=4, max_length=128)  # rows.py: at most 4 shapes to compile
    slots = rows.plan(16, lengths, seed=0, epoch=2)
    batches = [rows.batch(slot, 16) for slot in slots]
    rows.restore(slots, outputs)  # in the order of the examples; for word tags restore_words
    score(task, predictions, labels)  # metrics.py: {"matthews": 53.7}
    average("squeezebert_dev", scores)  # averages.py: as a paper averages its tasks
    write_submission(path, predictions)  # submission.py: for the GLUE leaderboard

A task with questions, whose answers are parts of a paragraph:

    questions = SQUAD["squad1"].read("train", directory).questions  # squad_tasks.py, squad.py; or custom_questions.py
    data = make_windows(questions, tokenizer, Windowing(), labels=True); data.rows, data.skipped  # windows.py
    data.plan(16, lengths), data.batch(slot, 16)  # as for rows
    answered = decode(data, data.restore(slots, outputs), Decoding())  # answers.py
    score_1(questions, predictions); save(directory, answered)  # squad_metric.py

A batch has `input_ids, token_type_ids, attention_mask` (B,L) int32 and `row_weight` (B,) float32, 0 in rows that do not
count, such as those that fill the batch. With labels, it has `label` (B,) int32 or float32; for words `label` (B,L)
int32 and `label_weight` (B,L) float32; for windows `start`, `end` (B,) int32 and `answerable` (B,) float32.
"""
