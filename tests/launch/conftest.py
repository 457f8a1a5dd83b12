"""Fixtures of launcher tests: fake clouds, and arguments that a careless shell breaks."""

from pathlib import Path

import pytest
from clouds import Cloud


@pytest.fixture
def cloud(tmp_path: Path) -> Cloud:
    return Cloud(tmp_path)


# Arguments that every launcher must bring to `bertzoo pretrain` unharmed.
@pytest.fixture
def hostile() -> list[str]:
    return [
        "my config.toml",
        '--run_dir=gs://bucket/it\'s "a" run',
        "--data.source=text/*.txt",
        "--x=$(touch broken) `touch broken` $HOME ${PATH}",
        "--y=a;b & c | d > e \\ # ! ~ {1,2}",
        "--z=",
    ]
