"""benchmarks/learning_page.py: the table, the picture and the order that it says the runs come in."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from scripts import loaded


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Any:
    return loaded("learning_page", monkeypatch)


def found_of(pages: Any, name: str, title: str, points: float, **end: float) -> Any:
    curve = [
        (n * 10**12, {"mlm_hidden_loss": 4.0 - n / 10, **({"rtd_auc": 0.6, "rtd_loss": 0.4} if end else {})})
        for n in (1, 2, 3)
    ]
    scores = {
        task: {which: {metric: points + move} for which, move in (("median", 0), ("min", -1), ("max", 2))}
        for task, (_, metric) in pages.SHOWN.items()
    }
    return pages.Figures(
        name=name, title=title, parameters=232172, steps=1287, minutes=8.5, flops=3 * 10**12, longer=2 * 10**12,
        curve=curve,
        end={"mlm_hidden_loss": 3.4, "unigram_entropy": 4.2, "max_length": 128, **end}, scores=scores,
        facts={"git": "0123456789abcdef+changes", "devices": ["cpu cpu"], "jax": "0.10.2"},
    )  # fmt: skip


def told_of(pages: Any, **more: Any) -> Any:
    manifest = {"splits": {"train": {"tokens": 1234567}}, "hash": "0123456789abcdef"}
    given = {"texts": ["books.txt.xz"], "manifest": manifest, "tuned": ["--seeds=3"], "took": None, "paper": None}
    given |= {
        "of_task": {"mrpc": ("--epochs=2",)},
        "jobs": 2,
        "tuned_at": [{"git": "beefbeefbeefbeef"}, {"git": "beefbeefbeefbeef"}],
    }
    return pages.Told(**{**given, **more})


def test_the_page(pages: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, str]] = []
    monkeypatch.setattr(pages, "RESULTS", tmp_path / "results.md")
    monkeypatch.setattr(pages, "write_section", lambda *given: written.append(given))
    bert = found_of(pages, "bert_small", "BERT-small", 60.0)
    electra = found_of(pages, "electra_small", "ELECTRA-small", 70.0, rtd_auc=0.71, rtd_loss=0.41)
    pages.write([bert, electra], told_of(pages, took={"minutes": 51.4, "jobs": 2, "cores": 4}))
    name, text = written.pop()
    scores = " | ".join(["60.0 (59.0 to 62.0)"] * 4)
    assert (
        f"| BERT-small | 232,172 | 1,287 | 3.00 | 3.800 / 3.400 | - | - | 8.5 | {scores} |" in text
        and name == "learning.py"
    )
    assert (
        "| 3.800 / 3.400 (generator) | 0.600 / 0.710 | 0.400 / 0.410 |" in text
        and "Commit 0123456789ab+changes, of the fine-tuning beefbeefbeef; cpu cpu" in text
    )
    assert "books.txt.xz; 1,234,567 tokens, hash 0123456789ab." in text and "--text books.txt.xz --glue=glue\n" in text
    assert "--task=mrpc --seeds=3 --epochs=2 ...\n" in text and "--task=cola --seeds=3 ...\n" in text
    assert "those of the pretraining, 2 runs at a time." in text
    assert "51 minutes, 2 runs at a time on 4 cores." in text and "accuracy" in text.split("MRPC")[1][:20]
    assert "ConvBERT's Table 1" not in text and (tmp_path / "learning.png").stat().st_size > 10_000
    pages.write([bert, electra], told_of(pages, paper=20, texts=[]))
    name, text = written.pop()
    assert (
        "ELECTRA-small 70.0 (69.0 to 72.0), BERT-small 60.0 (59.0 to 62.0). ConvBERT's Table 1, of all GLUE: " in text
    )
    assert "BERT-small 75.1; the same order." in text and (tmp_path / "learning_paper.png").exists()
    assert (
        "the embedded corpus; 1,2" in text and "learning.py --paper --minutes=20 --glue" in text and "--paper" in name
    )


def test_what_is_not_fine_tuned_has_no_score(pages: Any) -> None:
    bert = found_of(pages, "bert", "BERT", 60.0)
    taught, teacher = pages.table([bert, dataclasses.replace(bert, scores={})]).splitlines()[2:]
    assert taught.count("60.0 (59.0 to 62.0)") == 4 and teacher.endswith("| 8.5 | - | - | - | - |")


def test_the_order(pages: Any) -> None:
    electra = found_of(pages, "electra_small", "ELECTRA-small", 70.0)
    assert "ANOTHER order." in pages.order([electra, found_of(pages, "bert_small", "BERT-small", 80.0)])
    close = pages.order([electra, found_of(pages, "bert_small", "BERT-small", 68.0)])
    assert close.endswith("the same order. The seeds of ELECTRA-small and BERT-small overlap.")
    assert pages.printed() == {
        **pages.printed(), "BERT-small": 75.1, "ELECTRA-small": 80.4, "ConvBERT-small": 81.4
    }  # fmt: skip


def test_a_run_outside_a_checkout_has_no_commit(pages: Any) -> None:
    assert [
        pages.machine.revision({"git": each}) for each in (None, "0123456789abcdef", "0123456789abcdef+changes")
    ] == [
        "unknown",
        "0123456789ab",
        "0123456789ab+changes",
    ]


def test_what_is_drawn(pages: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both losses of a model under replaced token detection, its generator's broken; a dot where rows grow longer."""
    from matplotlib.figure import Figure

    seen: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, dpi: seen.append(figure))
    fresh = dataclasses.replace(found_of(pages, "c", "fresh", 1.0), flops=10**10)
    pages.draw([fresh, found_of(pages, "a", "BERT", 1.0), found_of(pages, "b", "ELECTRA", 1.0, rtd_auc=0.7)], tmp_path)
    left, right = seen[0].axes
    curves = [line for line in left.lines if len(line.get_xdata()) == 3]
    assert [line.get_label() for line in curves] == ["BERT", "ELECTRA's generator"]
    assert [line.get_linestyle() for line in curves] == ["-", "--"]
    assert right.lines[0].get_label() == "ELECTRA" and list(right.lines[0].get_xdata()) == [1, 2, 3]
    dots = [line for line in left.lines if line.get_marker() == "o"]
    assert [list(dot.get_xdata()) for dot in dots] == [[2.0], [2.0]], "where rows grow longer"
    assert [list(dot.get_ydata()) for dot in dots] == [[3.8], [3.8]]
