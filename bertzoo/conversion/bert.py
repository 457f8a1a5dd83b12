"""BERT at Hugging Face."""

from bertzoo.conversion.family import (
    BERT_TIED,
    Family,
    HeadLayout,
    bert_attributes,
    bert_embeddings,
    bert_layers,
    bert_masked_head,
    bert_pretraining_heads,
    no_rows,
    plain,
)
from bertzoo.models import Bert

FAMILY = Family(
    model_type="bert",
    config=Bert,
    prefix="bert.",
    attributes=bert_attributes(),
    rows=lambda model: (*bert_embeddings(model), *bert_layers(model)),
    pooler="pooler.dense",
    tied=BERT_TIED,
    heads={
        "none": HeadLayout("BertModel", no_rows),
        "masked": HeadLayout("BertForMaskedLM", bert_masked_head),
        "masked_sentence": HeadLayout("BertForPreTraining", bert_pretraining_heads, needs_pooler=True),
        "sequence_classification": HeadLayout(
            "BertForSequenceClassification", plain("classifier", "classifier"), "classifier_dropout", needs_pooler=True
        ),
        "token_classification": HeadLayout(
            "BertForTokenClassification", plain("token_classifier", "classifier"), "classifier_dropout"
        ),
        "span": HeadLayout("BertForQuestionAnswering", plain("span_head", "qa_outputs")),
    },
    dropouts={"classifier_dropout": None},
    # Of the multilingual release's config.json; nothing reads them.
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
