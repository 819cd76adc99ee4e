"""`translate info`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from translate.cli.options import PluginOption, RunArgument

if TYPE_CHECKING:  # pydantic takes a while, and `--help` imports this file
    from translate.config import ModelConfig


def command(
    run: RunArgument,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    plugin: PluginOption = None,
) -> None:
    """Describe a run: its model, data, checkpoints and scores."""
    import json

    facts = describe_run(run)
    if as_json:
        print(json.dumps(facts))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        print(f"{name.replace('_', ' '):<{width}}  {shown}")


def describe_run(path: RunArgument) -> dict[str, object]:
    """The facts of a run, by name."""
    import json

    from translate.run.directory import Run

    run = Run.open(path)
    config = run.config()
    source, target = run.tokenizers()
    best = run.best()
    state = best.state()
    latest = run.latest()
    newest = state if latest is None else latest.state()  # a copied run may hold only its best checkpoint
    model = config.model
    attention = ", ".join([model.attention.score, model.attention.scope, model.attention.selection, *_looks(model)])
    facts: dict[str, object] = {
        "run": str(path),
        "languages": f"{config.data.source_lang} → {config.data.target_lang}",
        "encoder": f"{model.encoder.kind}, {model.encoder.layers} × {model.encoder.width}, {model.encoder.summary}",
        "decoder": f"{model.decoder.kind}, {model.decoder.layers} × {model.decoder.width}, {model.decoder.cell}",
        "attention": attention if model.attends else "none",
        "parameters": sum(tensor.numel() for tensor in best.weights().values()),
        "vocabulary": [source.size, target.size],
        "best": best.name,
        f"validation_{config.train.metric}": _score(state),
        "updates": newest["step"],
        "training_minutes": round(newest["seconds"] / 60, 2),
        "checkpoints": [checkpoint.name for checkpoint in run.checkpoints()],
    }
    if run.plugins():
        facts["plugins"] = [f"{plugin.name} ({', '.join(plugin.members)})" for plugin in run.plugins()]
    test = path / "translations" / "test.json"
    if test.is_file():
        facts["test_bleu"] = json.loads(test.read_text())["bleu"]["score"]
    return facts


def _looks(model: ModelConfig) -> list[str]:
    """The options of attention that are on."""
    settings = model.attention
    counts = [f"{name} {count}" for name, count in (("heads", settings.heads), ("hops", settings.hops)) if count > 1]
    flags = {"per feature": settings.per_feature, "coverage": settings.coverage, "copy": model.decoder.copy}
    return counts + [name for name, there in flags.items() if there]


def _score(state: dict[str, Any]) -> float | None:
    """The best checkpoint's validation score; a loss is stored negated."""
    score = state.get("best_score")
    return None if score is None or score < -1e29 else round(abs(score), 3)
