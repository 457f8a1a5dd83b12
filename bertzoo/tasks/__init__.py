"""Tasks with labels: their files become examples, examples become rows, predictions become scores; no jax.

    task = GLUE["cola"]  # glue.py; or, from the user's own files, own.py: Own(train="a.csv").task(directory)
    read = task.read("train", directory); read.examples, read.skipped  # task.py

    rows = encode(read.examples, tokenizer, 128, task.kind)  # encode.py
    lengths = bucket_lengths([rows, dev], buckets=4, max_length=128)  # rows.py: at most 4 shapes are compiled
    for slot in rows.plan(16, lengths, seed=0, epoch=2):
        batch = rows.batch(slot, 16)
    dev.restore(slots, outputs)  # in the order of the examples; of words restore_words

    score(task, predictions, labels)  # metrics.py: {"matthews": 53.7}
    average("squeezebert_dev", scores)  # averages.py: the means that papers print
    write("glue.zip", predictions)  # submission.py: what the GLUE leaderboard takes

    asked = SQUAD["squad1"].read("train", directory)  # spans.py; or questions.task(Own(kind="span", train="a.csv"))
    questions = squad.load(directory, "train", "1.1")  # squad.py
    found = windows.make(questions, tokenizer, Windowing(), labels=True); found.rows, found.skipped  # windows.py
    found.batch(slot, 16); decode(found, found.restore(slots, outputs), Decoding())  # answers.py
    score_1(questions, predictions); save(directory, answered)  # squad_metric.py

A batch is `input_ids, token_type_ids, attention_mask` (B, L) int32, `row_weight` (B,) float32, 0 in rows that only
pad; where there are labels `label` (B,) int32 or float32, or for tokens (B, L) int32 and `label_weight` (B, L) float32;
of windows `start`, `end` (B,) int32 and `answerable` (B,) float32.
"""
