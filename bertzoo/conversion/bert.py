"""BERT's tensor names and config attributes at Hugging Face."""

from bertzoo.conversion import family
from bertzoo.conversion.family import Family
from bertzoo.models import Bert

FAMILY = Family(
    model_type="bert",
    config=Bert,
    prefix="bert.",
    attributes=family.bert_attributes(),
    rules=lambda model: (*family.embedding_rules(model), *family.bert_layer_rules(model)),
    pooler="pooler.dense",
    tied=family.BERT_TIED,
    heads=family.standard_heads(
        "Bert", "classifier_dropout", family.bert_masked_head, family.bert_pretraining_heads, pooled=True
    ),
    dropouts={"classifier_dropout": None},
    # In the multilingual release's config.json; no code reads them.
    ignored=frozenset(
        {
            "directionality",
            "pooler_fc_size",
            "pooler_num_attention_heads",
            "pooler_num_fc_layers",
            "pooler_size_per_head",
            "pooler_type",
        }
    ),
)
