"""The JSON schema of configs, which editors use, accepts what `config.load` accepts and rejects what it rejects."""

import json
import tomllib
from typing import Any

import jsonschema
import pytest

from bertzoo.cli import main as cli
from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.core.json_schema import json_schema
from bertzoo.core.kinds import KINDS, kind_of


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    schema = json_schema(kind.config() for kind in KINDS.values())
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def test_every_shipped_config_fits(validator: jsonschema.Draft7Validator, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["config", "--schema"]) == 0 and json.loads(capsys.readouterr().out) == validator.schema
    for name, path in config.shipped().items():
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        assert validator.is_valid(table), name
    assert validator.is_valid({"model": {"layers": 6}})  # a file that is used after another


@pytest.mark.parametrize(
    ("name", "keys", "value"),
    [
        ("squeezebert", ["optimiser"], {}),
        ("squeezebert", ["model", "layer"], 6),
        ("squeezebert", ["model", "layers"], "six"),
        ("squeezebert", ["model", "kind"], "squeezbert"),
        ("convbert_small", ["model", "heads"], 4.5),
        ("bert_base", ["stages", 0, "step"], 4),
        ("bert_base", ["optimizer", "schedule", "warmup_step"], 4),
        ("mobilebert_transfer", ["transfer", "kind"], "slow"),
        ("finetune", ["epoch"], 3),
        ("prune_66m", ["cut", "iteration"], 2),
    ],
)
def test_a_mistake_fails_as_in_a_command(
    name: str, keys: list[Any], value: Any, validator: jsonschema.Draft7Validator
) -> None:
    table: Any = tomllib.loads(config.shipped()[name].read_text(encoding="utf-8"))
    inner = table
    for key in keys[:-1]:
        inner = inner[key] if isinstance(inner, list) else inner.setdefault(key, {})
    inner[keys[-1]] = value
    assert not validator.is_valid(table)
    with pytest.raises(ConfigError):
        config.from_dict(kind_of(table).config(), table)


def test_keys_have_descriptions_and_defaults(validator: jsonschema.Draft7Validator) -> None:
    definitions = validator.schema["definitions"]
    assert definitions["Lamb"]["properties"]["weight_decay"]["default"] > 0
    described = [key for table in definitions.values() for key, value in table["properties"].items()]
    bare = {
        (name, key)
        for name, table in definitions.items()
        for key, value in table["properties"].items()
        if "$ref" not in value and "description" not in value and key != "kind"
    }
    assert len(described) > 250 and not bare
