"""A table of word vectors: the sum of words and positions, and nothing to cut."""

import numpy as np
import pytest
from zoo import STATIC, inputs, pretrained

from bertzoo.core.errors import ConfigError
from bertzoo.heads import SentenceEmbedding
from bertzoo.models import Static
from bertzoo.pruning.structure import declare


def test_a_text_is_the_mean_of_its_words_and_positions() -> None:
    source = pretrained(*STATIC["static"])
    module, params = source.module()
    ids, types, mask = inputs()
    tables = {name: np.asarray(array) for name, array in source.params.items()}
    states = tables["embedding/word/embedding"][ids] + tables["embedding/position/embedding"][: ids.shape[1]]
    states = states * tables["embedding/norm/scale"] + tables["embedding/norm/bias"]
    means = (states * mask[..., None]).sum(1)[:, :16]
    wanted = means / np.linalg.norm(means, axis=-1, keepdims=True)
    np.testing.assert_allclose(module.apply({"params": params}, ids, types, mask).logits, wanted, atol=1e-6)


def test_it_has_no_layers_to_cut() -> None:
    with pytest.raises(ConfigError, match="no layers"):
        declare(Static(), SentenceEmbedding())
