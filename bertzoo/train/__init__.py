"""Training: knows no model, no paper and no data format.

loop.run(job: Job) -> State
loop.Job(setups, stages, config: RunSettings, mesh, seed, batches, heldout=None, checkpoints=None, reporters=(),
         length=None, flops_per_example=None, frozen=None, describe=None, initial=None, until=None,
         measure=None, enough=…, programs={})
    batches(stage_index, row) -> iterator of dict[str, np.ndarray] to the stage's end, from the batch of `row`
    heldout(stage_index) -> iterable of batches;  describe(stage_index, row, rows) -> list[str]
setup.StageSetup(objective, optimizer, rates=None, name="")
loop.RunSettings(log_every, evaluate_every, evaluate_rows, save_every, keep_last, keep_best)             config
stages.Stage(steps, batch_size, max_length, max_predictions, learning_rate, accumulate, carry)   config
optim.Lamb | optim.AdamW | optim.BertAdam = optim.Optimizer;  schedule.Schedule                  config
sharding.Mesh(data, fsdp, tensor) -> sharding.make_mesh(config)                                  config
optim.build(config, steps, learning_rate=None, *, stack=None, rates=None) -> optax.GradientTransformation
optim.excluded(params) -> tree of bool;  optim.carry(old, new, what)
state.fresh(objective, optimizer, mesh, seed, initial=None), state.abstract(objective, optimizer, mesh) -> State
step.make_train_step(objective, optimizer, *, accumulate=1, shardings=None, frozen_shardings=None)
    -> (state, frozen, batch) -> (state, report)
step.make_eval_step(objective) -> (params, frozen, batch) -> report
step.evaluate(eval_step, params, frozen, batches, mesh) -> {"loss": …, "<term>_loss": …, metric: …}
checkpoint.Checkpoints(directory, *, keep_last=3, keep_best=1): save, wait, restore_latest, steps, latest, close
restore.restore_params(directory, abstract_params, which="latest" | "best" | step) -> (params, step)
contents.read_contents(checkpoint) -> Contents: step, position, loss, mesh, arrays' names, shapes and dtypes, from files alone
progress.JsonLines(path), TensorBoard(directory), Console(stages, stream=None)  reporters
"""
