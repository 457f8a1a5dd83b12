"""Write the report of a fine-tuning run: curves of loss and scores by seed, and a page with the scores."""

import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertzoo.core import config, tables
from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import CONFIG, METRICS
from bertzoo.finetuning.kind import BASELINES
from bertzoo.finetuning.seeds import SCORES, chosen_epoch, read_decision, read_scores
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import Scores
from bertzoo.runs import provenance, report
from bertzoo.runs.report import History
from bertzoo.tasks.decision import describe

SeedScores = Mapping[int, list[Scores]]  # by seed, the loss and scores of each epoch
_MOST = 20  # labels of a whole confusion matrix; of more, the report has as many of the most frequent confusions


def write_report(directory: Path) -> tuple[list[Path], str]:
    """Write loss.png, scores.png, reliability.png and report.md into a run's directory, also while the run is training.

    Returns the files' paths, and the newest seed's losses as text. Raises UserError before the end of the
    first epoch.
    """
    recipe = config.load(Finetune, [directory / CONFIG])
    folders = {seed: directory / f"seed-{seed}" for seed in range(recipe.seed, recipe.seed + recipe.seeds)}
    scores = {seed: epochs for seed, folder in folders.items() if (epochs := read_scores(folder / SCORES))}
    if not scores:
        raise UserError(f"{directory} has no scores yet. Run the training for longer.")
    histories = {seed: report.read_history(folders[seed] / METRICS) for seed in scores}
    names = [key for key in report.metric_names(next(iter(histories.values()))) if key.startswith(("dev", "loss"))]
    written = [
        _draw(histories, ["loss"], directory / "loss.png"),
        _draw(histories, [key for key in names if key != "loss"], directory / "scores.png"),
    ]
    source = provenance.read_run_json(directory, str(directory))["from"]["path"]
    best = max(scores, key=lambda seed: chosen_epoch(recipe, scores[seed])["score"])
    if decision := read_decision(folders[best]):
        written.append(_draw_reliability(decision["reliability"], directory / "reliability.png"))
    text = _page(directory, recipe, str(source), scores, written)
    if decision:
        text += f"\n## Decisions of seed {best}\n\n" + "\n\n".join([*describe(decision), _confusion(decision)]) + "\n"
    (directory / "report.md").write_text(text, encoding="utf-8")
    newest = max(histories)
    train, heldout = (  # without the scores: they are in points, and the summary would format them as shares
        [{"step": line["step"], "loss": line["loss"]} for line in lines]
        for lines in (histories[newest].train, histories[newest].heldout)
    )
    losses = replace(histories[newest], train=train, heldout=heldout)
    summary = f"The loss of seed {newest}:\n{report.summary(losses)}"
    return [*written, directory / "report.md"], summary


def _page(directory: Path, recipe: Finetune, source: str, scores: SeedScores, pictures: list[Path]) -> str:
    chosen = {seed: chosen_epoch(recipe, history) for seed, history in scores.items()}
    columns = [(split, name) for split, named in next(iter(chosen.values()))["scores"].items() for name in named]
    rows = [
        [str(seed), str(best["epoch"]), str(len(scores[seed])), f"{best['loss']:.4f}"]
        + [f"{best['scores'][split][name]:.2f}" for split, name in columns]
        for seed, best in chosen.items()
    ]
    medians = [statistics.median(best["scores"][split][name] for best in chosen.values()) for split, name in columns]
    rows.append(["median", "", "", "", *(f"{median:.2f}" for median in medians)])
    file = directory / BASELINES
    simple = read_json(file, {"rows": int, "scores": {str: dict}}, "Remove the file.") if file.is_file() else {}
    for name, splits in simple.get("scores", {}).items():
        rows.append([name, "", "", "", *(f"{splits[split][metric]:.2f}" for split, metric in columns)])
    head = ["seed", "chosen epoch", "epochs done", "loss (nats)", *(f"{split} {name}" for split, name in columns)]
    setup = f"Task {recipe.task}, fine-tuned from {source}: {len(scores)} of {recipe.seeds} seeds, scores in points."
    collapsed = [str(seed) for seed, best in chosen.items() if best["collapsed"]]
    note = f"Every example got the same prediction from seed {', '.join(collapsed)}." if collapsed else ""
    images = [f"![{path.stem}]({path.name})" for path in pictures]
    sections = [f"# {directory.resolve().name}", setup, tables.markdown(head, rows), note, *images]
    return "\n\n".join(section for section in sections if section) + "\n"


def _draw(histories: Mapping[int, History], names: list[str], path: Path) -> Path:
    """Draw a panel per metric in `names` against the step: lines for training, markers for dev, a colour per seed."""
    figure = report.new_figure(8, 1.2 + 2.8 * len(names))
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    for axes, name in zip(panels, names, strict=True):
        for index, (seed, history) in enumerate(histories.items()):
            axes.plot(*report.series(history.train, name), color=f"C{index}", linewidth=0.8, alpha=0.6)
            axes.plot(*report.series(history.heldout, name), color=f"C{index}", marker="o", label=f"seed {seed}")
        axes.set_ylabel(f"{name} (nats)" if name == "loss" else f"{name.replace('_', ' ')} (points)")
        axes.grid(alpha=0.25)
    panels[0].legend(frameon=False)
    panels[-1].set_xlabel("step")
    figure.savefig(path, dpi=120)
    return path


def _draw_reliability(curves: list[dict[str, Any]], path: Path) -> Path:
    """Draw the share of right predictions against their probability, before and after calibration."""
    figure = report.new_figure(5, 4.5)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=0.8)
    for curve, name in zip(curves, ("as trained", "calibrated"), strict=False):
        filled = [bin for bin in curve["bins"] if bin[0]]
        label = f"{name}: error {curve['ece']:.2f} points"
        axes.plot([mean for _, mean, _ in filled], [share for _, _, share in filled], marker="o", label=label)
    axes.set_xlabel("probability of the prediction")
    axes.set_ylabel("share of right predictions")
    axes.legend(frameon=False)
    axes.grid(alpha=0.25)
    figure.savefig(path, dpi=120)
    return path


def _confusion(decision: Mapping[str, Any]) -> str:
    """Return a Markdown table of examples by label and prediction; of many labels, the most frequent confusions."""
    labels = decision["labels"]
    if "counts" in decision:
        rows = [[label, *map(str, row)] for label, row in zip(labels, decision["counts"], strict=True)]
        return tables.markdown(["label", "right", "wrong", "missing"], rows)
    counts, names = decision["confusion"], [*labels, "none"]
    if len(labels) <= _MOST:
        columns = len(names) if any(row[-1] for row in counts) else len(labels)
        rows = [[label, *map(str, row[:columns])] for label, row in zip(labels, counts, strict=True)]
        return tables.markdown(["label \\ prediction", *names[:columns]], rows)
    wrong = [(n, labels[i], names[j]) for i, row in enumerate(counts) for j, n in enumerate(row) if n and i != j]
    rows = [[label, name, str(n)] for n, label, name in sorted(wrong, key=lambda row: -row[0])[:_MOST]]
    return tables.markdown(["label", "prediction", "examples"], rows)
