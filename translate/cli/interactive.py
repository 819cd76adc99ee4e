"""`translate interactive`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from translate.cli.options import BeamOption, DeviceOption, PluginOption, RunArgument, SetOption

if TYPE_CHECKING:
    from rich.console import Console

    from translate.decoding.aligner import AlignedSentence
    from translate.decoding.translator import Translation, Translator

HELP = """Type a sentence and press Enter. Commands:
  :heat          show or hide the attention heat map under each translation
  :nbest N       show the N best translations
  :beam N        keep N hypotheses while searching; 1 is greedy
  :save FILE     draw the last translation's attention into FILE, a .png, .svg or .pdf
  :help          this list
  :quit          leave; Ctrl-D does too
The arrow keys bring back earlier lines. Ctrl-C stops a sentence."""


def command(
    run: RunArgument,
    beam: BeamOption = None,
    settings: SetOption = None,
    device: DeviceOption = "auto",
    plugin: PluginOption = None,
) -> None:
    """Translate sentences typed at a prompt, with n-best lists and attention heat maps."""
    from rich.console import Console

    from translate.cli.options import load_translator

    translator = load_translator(run, beam, device, settings)
    console = Console(highlight=False, emoji=False)  # a text with :dog: in it stays as it is
    console.print(f"{run}: type a sentence, or :help.", markup=False)
    Session(translator, console).loop()


class Session:
    """The state of a prompt."""

    def __init__(self, translator: Translator, console: Console) -> None:
        self.translator = translator
        self.console = console
        self.num_best = 1
        self.heat = False
        self.asked = 0  # sentences so far: the line number of a draw
        self.last: tuple[str, Translation] | None = None

    def loop(self) -> None:
        """Read and answer until the input ends."""
        import contextlib

        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (its import gives input() a history and line editing)
        while True:
            try:
                line = input("> ")
            except EOFError:
                self.console.print()
                return
            except KeyboardInterrupt:
                self.console.print()
                continue
            except UnicodeDecodeError:
                self.console.print("that is not UTF-8: type it again, or convert the file, for example with iconv")
                continue
            if line.strip() in (":quit", ":q"):
                return
            self.answer(line)

    def answer(self, line: str) -> None:
        """One line: a command or a sentence."""
        name, _, value = line.strip().partition(" ")
        if name == ":heat":
            self.heat = not self.heat
            self.console.print(f"heat map {'on' if self.heat else 'off'}")
        elif name in (":nbest", ":beam"):
            self._set_number(name, value.strip())
        elif name == ":save":
            self._save(value.strip())
        elif name == ":help":
            self.console.print(HELP, markup=False)
        elif name.startswith(":"):
            self.console.print(f"{name}: unknown command. :help lists them.", markup=False)
        elif name:
            self._translate(line)

    def _set_number(self, name: str, value: str) -> None:
        if not value.isdecimal() or not 1 <= int(value) <= 100:
            self.console.print(f"{name} takes a number from 1 to 100, as in {name} 5", markup=False)
            return
        beam = self.translator.search.beam
        if name == ":nbest":
            self.num_best = int(value)
            beam = max(beam, self.num_best)
        else:
            beam = int(value)
            self.num_best = min(self.num_best, beam)
        self.translator.search = self.translator.search.model_copy(update={"beam": beam})
        self.console.print(f"beam {beam}, {self.num_best} best", markup=False)

    def _translate(self, line: str) -> None:
        from translate.errors import UserError
        from translate.figures.labels import visible
        from translate.figures.terminal import terminal_heatmap

        self.asked += 1
        try:
            best = self.translator.translate([line], num_best=self.num_best, first_line=self.asked)[0]
        except KeyboardInterrupt:
            self.console.print("stopped")
            return
        except UserError as error:  # for example, search.groups does not divide the beam
            self.console.print(str(error), markup=False)
            return
        self.last = (line, best[0])
        for translation in best:
            shown = visible(translation.text) if translation.text else ""
            prefix = f"{translation.score:7.3f}  " if self.num_best > 1 else ""
            self.console.print(prefix + shown, markup=False, soft_wrap=True)
        if not self.heat:
            return
        aligned = self._aligned()
        if aligned is not None:
            columns = [*aligned.source_words, "</s>"]
            self.console.print(
                terminal_heatmap(aligned.word_weights, columns, aligned.target_words, self.console.width),
                soft_wrap=True,
            )

    def _aligned(self) -> AlignedSentence | None:
        """The last translation with its attention over words, or None after a message that says why."""
        from translate.decoding.aligner import align_translation

        if self.last is None:
            self.console.print("there is no translation yet: type a sentence first")
            return None
        line, translation = self.last
        if translation.attention is None:
            self.console.print("this run's decoder has no attention to show")
            return None
        return align_translation(self.translator, line, translation)

    def _save(self, name: str) -> None:
        from translate.errors import UserError
        from translate.figures.heatmap import save_heatmap

        if not name:
            self.console.print(":save takes the name of a file, as in :save look.png", markup=False)
            return
        aligned = self._aligned()
        if aligned is None:
            return
        try:
            path = Path(name).expanduser()
            save_heatmap(path, aligned.word_weights, [*aligned.source_words, "</s>"], aligned.target_words)
        except (UserError, RuntimeError) as error:  # RuntimeError: ~name of an unknown user
            self.console.print(str(error), markup=False)
            return
        self.console.print(f"saved {path}", markup=False, soft_wrap=True)
