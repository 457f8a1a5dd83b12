"""Tasks: read examples from files, encode them as rows, and score predictions. Nothing here needs jax.

To predict a class or a number per text, or a tag per word (`directory` holds the task's files; `outputs` has the
model's predictions for each batch, (B,) or (B,L)):

    task = GLUE["cola"]  # glue.py; for your own files CustomFiles(train="a.csv").task(directory), in custom.py
    split = task.read("train", directory); split.examples, split.skipped  # task.py
    rows = encode(split.examples, tokenizer, 128, task.kind)  # encode.py: at most 128 tokens per row
    lengths = bucket_lengths([rows], buckets=4, max_length=128)  # rows.py: at most 4 batch lengths to compile
    slots = rows.plan(16, lengths, seed=0, epoch=2)  # the rows and the length of each batch
    batches = [rows.batch(slot, 16) for slot in slots]
    predictions = rows.restore(slots, outputs)  # in the order of the examples; for word tags restore_words
    score(task, predictions, [example.label for example in split.examples])  # metrics.py: {"matthews": 53.7}

`write_submission` (submission.py) writes predictions for the GLUE leaderboard.

To answer questions with parts of a paragraph:

    questions = SQUAD["squad1"].read("train", directory).questions  # squad_tasks.py, squad.py; or custom_questions.py
    data = make_windows(questions, tokenizer, Windowing(), labels=True); data.rows, data.skipped  # windows.py
    data.plan(16, lengths), data.batch(slot, 16)  # as for rows
    answered = decode(data, data.restore(slots, outputs), Decoding())  # answers.py; outputs: start and end logits
    score_1(questions, {a.key: a.text for a in answered}); save(directory, answered)  # squad_metric.py

A batch has `input_ids, token_type_ids, attention_mask` (B,L) int32 and `row_weight` (B,) float32, 0 in rows that do not
count, such as those that fill the batch. With labels, it has `label` (B,) int32 or float32; for words `label` (B,L)
int32 and `label_weight` (B,L) float32; for windows `start`, `end` (B,) int32 and `answerable` (B,) float32.
"""
