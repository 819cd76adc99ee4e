"""Train a run from a configuration: prepare, train, and score the test set once."""

from __future__ import annotations

from translate.config import Config
from translate.decoding.translator import Translator
from translate.device import resolve_device
from translate.distributed import World, joined
from translate.errors import Stopped, UserError
from translate.evaluation.evaluate import evaluate_lines, keep_translations, read_pairs, run_split_files
from translate.evaluation.metrics import MetricSettings
from translate.run.directory import Run
from translate.training.logging import Reporter
from translate.training.loop import Trainer
from translate.training.prepare import TrainingInputs, merge_for_resume, open_inputs, open_prepared
from translate.training.progress import limits_reached
from translate.training.signals import StopSignals


def train(config: Config, run: Run, resume: bool, test: bool, reporter: Reporter) -> None:
    """Train or resume a run; a finished one stays unchanged. Under torchrun this is one of several processes."""
    with StopSignals() as signals, joined() as world:
        if world.leads:
            with run.lock():
                mine = world.restarted and run.job() == world.job  # else the first attempt was refused with an error
                if world.job and (resume or mine or not run.exists()):
                    run.note_job(world.job)
                inputs = _open(config, run, resume or mine, test, reporter, world)
                if inputs is not None:
                    _train(inputs, test, reporter, signals, world)
        elif world.from_leader(False):
            _train(open_prepared(run), test, reporter, signals, world)


def _open(
    config: Config, run: Run, resume: bool, test: bool, reporter: Reporter, world: World
) -> TrainingInputs | None:
    """Create or resume the run, and tell the other processes whether there is anything to do."""
    inputs = None
    try:
        reached = limits_reached(merge_for_resume(config, run), run, test) if resume and run.exists() else []
        if reached:
            reporter.say(f"{run.path} is finished. Raise {' and '.join(reached)} to continue it.")
        else:
            resolve_device(config.train.device)  # before the run is created, so that a second try can create it
            inputs = open_inputs(config, run, resume, test, reporter.say)
    finally:
        world.from_leader(inputs is not None)
    return inputs


def _train(inputs: TrainingInputs, test: bool, reporter: Reporter, signals: StopSignals, world: World) -> None:
    trainer = Trainer(inputs, reporter, signals, world)
    trainer.fit()
    signals.can_save = False
    if not world.leads:
        return
    if signals.received is not None:  # it came after the loop had ended
        raise Stopped(signals.received, f"Stopped after update {trainer.progress.step}; the checkpoint is saved.")
    trainer.note_end(tested=False)
    if inputs.config.logging.pictures:
        _draw_curves(inputs, reporter)
    if test:
        _test(inputs.run, trainer, reporter)
        trainer.note_end(tested=True)


def _draw_curves(inputs: TrainingInputs, reporter: Reporter) -> None:
    from translate.figures.curves import save_curves  # matplotlib takes a second to load

    path = inputs.run.path / "curves.png"
    try:
        save_curves(path, inputs.run.path / "metrics.jsonl", only_in_training(inputs.config))
        reporter.say(f"learning curves: {path}")
    except UserError as error:  # the run is complete without the picture
        reporter.say(f"Warning: {error}")


def only_in_training(config: Config) -> list[str]:
    """What raises the training loss and is left out of the validation loss."""
    model = config.model
    dropped = [part.dropout for part in (model.embedding, model.encoder, model.decoder)]
    dropped += [model.encoder.word_dropout, model.decoder.word_dropout]
    shares = {
        "dropout": max(dropped),
        "label smoothing": config.train.label_smoothing,
    }
    return [name for name, share in shares.items() if share]


def _test(run: Run, trainer: Trainer, reporter: Reporter) -> None:
    """Score the test set with the best checkpoint, once, and keep the translations."""
    inputs = trainer.inputs
    model = run.load_model().to(trainer.device)
    translator = Translator(model, inputs.source, inputs.target, inputs.config.search, trainer.device)
    settings = MetricSettings(inputs.config.data.target_lang)
    pairs = read_pairs(*run_split_files(run.path, "test"))
    evaluation, hypotheses = evaluate_lines(translator, *pairs, settings, run.path)
    keep_translations(run.path, "test", hypotheses, evaluation)
    bleu = evaluation.bleu
    reporter.say(
        f"test: BLEU {bleu.score:.1f} [{bleu.low:.1f}, {bleu.high:.1f}], chrF {evaluation.chrf.score:.1f}, "
        f"TER {evaluation.ter.score:.1f} ({run.best().name}, beam {inputs.config.search.beam}; {bleu.signature})"
    )
