"""Plan the full recipe of every paper on v5e and v6e: chip-hours and dollars, for docs/reproduce.md.

Of three slices, the cheapest on which every step fits and the run ends in a week. The plans do without the TPU
compiler, so memory is a bound and a step's messages are counted by rule; docs/plans.md has compiled steps.
"""

import jax

from benchmarks.lib import results
from bertzoo.core import config as loader
from bertzoo.core.errors import ConfigError
from bertzoo.core.kinds import config_class
from bertzoo.planning import chips, estimate

# Dollars for a chip-hour on demand in us-central1 and us-east5, from Google's price list.
PRICES = {"v5e": 1.2, "v6e": 2.7}
SHAPES = ("4x4", "8x8", "16x16")
LONGEST = 7 * 24  # hours that a run may take
RECIPES = {
    "BERT (Devlin et al. 2019)": ("bert_base", "bert_large"),
    "SqueezeBERT (Iandola et al. 2020)": ("squeezebert",),
    "MobileBERT (Sun et al. 2020)": ("ib_bert_large", "mobilebert_transfer", "mobilebert_tiny_transfer"),
    "ConvBERT (Jiang et al. 2020)": ("convbert_small", "convbert_medium_small", "convbert_base"),
    "schuBERT (Khetan & Karnin 2020)": ("schubert_66m", "schubert_43m"),
    "ELECTRA (Clark et al. 2020)": ("electra_small", "electra_base"),
    "ALBERT (Lan et al. 2020)": ("albert_base",),
    "DistilBERT, TinyBERT": ("distilbert", "tinybert"),
}


def plan(name: str, chip: str) -> estimate.RunPlan:
    """The plan of a shipped config on the cheapest slice: its steps fit, and it ends in a week at worst."""
    recipe, plans = loader.load(config_class(name), [name], []), []
    for shape in SHAPES:
        try:
            plans.append(estimate.make_plan(recipe, chips.parse_topology(f"{chip}:{shape}"), None))
        except ConfigError:  # the batch does not divide over the slice
            continue
    good = [p for p in plans if all(s.fits for s in p.stages) and p.chip_hours[1] / p.devices <= LONGEST]
    return min(good or plans[-1:], key=lambda slice_plan: slice_plan.chip_hours[1])


def amounts(best: float, worst: float) -> str:
    """Two amounts with two digits, or whole if they are larger."""
    return " to ".join(f"{amount:,.0f}" if amount >= 10 else f"{amount:.2g}" for amount in (best, worst))


def main() -> None:
    """Plan every recipe and write the table."""
    args = results.parser("reproduce", __doc__).parse_args()
    rows = []
    for paper, names in RECIPES.items():
        for name in names:
            row: dict[str, object] = {"paper": paper, "config": name}
            for chip, price in PRICES.items():
                planned = plan(name, chip)
                best, worst = planned.chip_hours
                row |= {
                    f"{chip} chips": planned.devices,
                    f"{chip}, hours": amounts(best / planned.devices, worst / planned.devices),
                    f"{chip}, chip-hours": amounts(best, worst),
                    f"{chip}, dollars": amounts(best * price, worst * price),
                }
            rows.append(row)
            print(row, flush=True)
    prices = ", ".join(f"{price:.2f} dollars for a chip-hour of {chip}" for chip, price in PRICES.items())
    results.write(
        args.out, [f"jax {jax.__version__}, no TPU compiler", prices, f"commit {results.commit()}"], {"recipes": rows}
    )
