"""The commit that run.json and pages name."""

import subprocess

from bertzoo.runs import provenance


def test_a_commit_has_a_mark_where_files_differ(tmp_path, monkeypatch):
    """Files of the package and, if requested, of folders beside it."""

    def git(*words):
        known = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        done = subprocess.run(["git", *known, *words], cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    module = tmp_path / "package" / "room" / "module.py"
    other = tmp_path / "benchmarks" / "script.py"
    for path in (module, other):
        path.parent.mkdir(parents=True)
        path.touch()
    monkeypatch.setattr(provenance, "__file__", str(module))
    git("init", "-q")
    assert provenance.git_revision() is None
    git("add", ".")
    git("commit", "-q", "-m", "a")
    commit = git("rev-parse", "HEAD")
    assert provenance.git_revision() == provenance.git_revision("benchmarks") == commit
    other.write_text("1")
    assert provenance.git_revision() == commit and provenance.git_revision("benchmarks") == f"{commit}+changes"
    module.write_text("1")
    assert provenance.git_revision() == f"{commit}+changes"
