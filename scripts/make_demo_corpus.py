"""Write the demo corpus: English and French sentences with gold word alignments, drawn from a seeded grammar.

    python scripts/make_demo_corpus.py [OUTPUT_DIR]

The same program writes the same bytes on every machine; it needs the standard library only.
"""

import argparse
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from demo_grammar import (
    NOTHING,
    Agreement,
    Pair,
    Phrase,
    ask,
    both,
    clause,
    conjunction,
    noun_phrase,
    object_pronoun,
    owner_phrase,
    predicate,
    preposition,
    realise,
    relative,
    subject_pronoun,
    time,
)
from demo_lexicon import (
    ADJECTIVES,
    ADVERBS,
    DESTINATIONS,
    ETRE,
    NOUNS,
    NUMBERS,
    OWNERS,
    POSSESSIVES,
    PRONOUNS,
    RELATED,
    STATES,
    VERB_OF_FORM,
    VERBS,
    WORD_CLASSES,
    Noun,
    Verb,
)

SEED = 2015
SIZES = {"train": 12_000, "valid": 500, "test": 500}
POOL = 15_000  # sentences drawn before those with a rare word are left out
RARE = 18  # a word in fewer pairs of the pool is left out with its pairs, so that training shows each often enough
LENGTHS = range(3, 26)  # words a side
DEFAULT_FOLDER = Path(__file__).resolve().parent.parent / "data" / "demo"

TENSES = {"present": 5.0, "past": 3.0, "future": 3.0}
SHAPES = {"simple": 30.0, "question": 17.5, "subordinate": 23.0, "reported": 15.0, "coordinate": 6.5, "nested": 9.5}
SUBJECTS = {"i": 5.0, "you": 4.0, "he": 3.0, "she": 3.0, "we": 4.5, "they": 4.0}
STACKS = {0: 56.0, 1: 28.0, 2: 14.0, 3: 2.0}
SINGULAR = {"the": 8.0, "a": 4.5, "this": 2.0, "possessive": 3.5, "every": 0.7, "owner": 2.5}
PLURAL = {"the": 6.0, "these": 2.0, "possessive": 2.5, "number": 4.0, "many": 1.2, "the+number": 1.0}
DEFINITE = ("the", "this", "these", "possessive", "owner")

T = TypeVar("T")


def _owned(phrase: Phrase) -> bool:
    """Say whether the phrase names an owner; it then takes no relative clause."""
    return any(word.text in POSSESSIVES or word.text.endswith("'s") for word in phrase.en)


class Sampler:
    """Draws sentences; every choice that French needs is one that English shows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, weights: dict[T, float]) -> T:
        return self.random.choices(list(weights), list(weights.values()))[0]

    def verb(self, tenses: Sequence[str], *, frames: Sequence[str] = (), subject: str = "", object: str = "") -> Verb:
        """Draw a verb that can stand in all these tenses, with this kind of subject or direct object."""
        return self.random.choice(
            [
                verb
                for verb in VERBS
                if set(tenses) <= set(verb.tenses)
                and (verb.frame in frames if frames else verb.frame != "clause")
                and (not subject or subject in verb.subjects)
                and (not object or (verb.frame == "object" and object in verb.objects))
            ]
        )

    # Noun phrases

    def adjectives(self, kind: str, stacks: dict[int, float]) -> list[str]:
        """Draw a stack of adjectives in English order, at most one of each rank."""
        choices: dict[int, list[str]] = {}
        for adjective in ADJECTIVES.values():
            if kind in adjective.kinds:
                choices.setdefault(adjective.rank, []).append(adjective.en)
        depth = min(self.pick(stacks), len(choices))
        return [self.random.choice(choices[rank]) for rank in sorted(self.random.sample(sorted(choices), depth))]

    def noun_of(self, kinds: Sequence[str]) -> Noun:
        """Draw a noun of one of these kinds."""
        kind = self.random.choice(list(kinds))
        return self.random.choice([noun for noun in NOUNS.values() if noun.kind == kind])

    def noun(self, noun: Noun, *, determiners: Sequence[str] = (), negated: bool = False) -> Phrase:
        """Draw determiner, number and adjectives of a noun."""
        plural = self.chance(0.35)
        weights = PLURAL if plural else SINGULAR
        choices = {name: w for name, w in weights.items() if not determiners or name in determiners}
        if noun.kind == "person" and noun.en[0] not in RELATED:
            choices = {name: w for name, w in choices.items() if name not in ("possessive", "owner")}
        choice = self.pick(choices)
        adjectives = self.adjectives(noun.kind, STACKS)
        number = self.random.choice(list(NUMBERS)) if choice.endswith("number") else ""
        if choice == "possessive":
            choice = self.random.choice(list(POSSESSIVES))
        if choice == "owner":
            owner = self.random.choice(OWNERS)
            whose = self.random.choice(["the", "the", "this", *(POSSESSIVES if owner in RELATED else ())])
            possessor = owner_phrase(owner, whose, self.adjectives("person", {0: 4.0, 1: 1.0}))
            return noun_phrase(noun.en[0], adjectives=adjectives, plural=plural, owner=possessor)
        determiner = choice.removesuffix("number").removesuffix("+")
        return noun_phrase(noun.en[0], determiner, adjectives, plural=plural, number=number, negated=negated)

    def location(self) -> Phrase:
        """Draw where something is or happens."""
        name = self.pick({"in": 4.0, "near": 2.0, "behind": 1.0, "in front of": 1.0, "next to": 1.0})
        noun = self.noun_of(["place"] if name == "in" else ["place", "spot"])
        return preposition(name, self.noun(noun, determiners=(*DEFINITE, "a")))

    def subject(self, verb: Verb, tense: str, *, short: bool = False, question: bool = False) -> tuple[Phrase, str]:
        """Draw a subject and its kind; where a participle agrees with it, English must show its gender."""
        if "person" in verb.subjects and self.chance(0.62 if short else 0.52):
            gendered = verb.with_etre and tense == "past"
            weights = {name: w for name, w in SUBJECTS.items() if PRONOUNS[name].has_gender or not gendered}
            if question:
                weights.pop("i", None)
            return subject_pronoun(PRONOUNS[self.pick(weights)]), "person"
        noun = self.noun_of(verb.subjects)
        phrase = self.noun(noun)
        if short:
            return phrase, noun.kind
        person = noun.kind == "person"
        extra = self.pick({"": 6.0, "relative": 3.2, "place": 0.5, "with": 0.6 * person, "both": 0.6 * person})
        if extra == "relative" and not _owned(phrase):
            phrase = self.relative(noun, phrase)
        elif extra == "place":
            phrase += self.location()
        elif extra == "with":
            phrase += preposition("with", self.noun(self.noun_of(["thing"])))
        elif extra == "both":
            phrase = both(phrase, self.noun(self.noun_of(["person"]), determiners=("the", "possessive")))
        return phrase, noun.kind

    def relative(self, noun: Noun, head: Phrase) -> Phrase:
        """Attach a relative clause on its subject or on its direct object."""
        person, tense = noun.kind == "person", self.pick({"present": 2.0, "past": 3.0, "future": 1.0})
        if noun.kind in ("person", "animal") and self.chance(0.5):
            gap, verb = Phrase(agreement=head.agreement), self.verb([tense], subject=noun.kind)
            return relative(head, self.finish(gap, noun.kind, verb, tense, short=True), person=person, on_subject=True)
        verb = self.verb([tense], object=noun.kind)
        subject, _ = self.subject(verb, tense, short=True)
        body = clause(subject, verb, tense, negative=self.chance(0.15), gap=head.agreement)
        return relative(head, body, person=person, on_subject=False)

    # Clauses

    def object(self, verb: Verb, *, negated: bool, short: bool) -> tuple[Phrase, bool]:
        """Draw a direct object, and say whether a relative clause ends it."""
        noun = self.noun_of(verb.objects)
        no_indefinite = verb.en[0] == "like" or noun.kind == "person"  # "pas de" would be odd or wrong
        under_negation = DEFINITE if no_indefinite else (*DEFINITE, "a")
        phrase = self.noun(noun, determiners=under_negation if negated else (), negated=negated)
        # A negated indefinite would call for the subjunctive in its relative clause.
        indefinite = negated and phrase.en[0].text in ("a", "an")
        if short or indefinite or _owned(phrase) or not self.chance(0.3):
            return phrase, False
        return self.relative(noun, phrase), True

    def clitic(self, subject: Agreement, *, indirect: bool, participle: bool, people: bool) -> Phrase:
        """Draw an object pronoun; a participle agrees only with one whose gender English shows."""
        if not people:
            names = ["they"]
        elif participle and not indirect:
            names = ["he", "she"]
        else:
            # Neither "i see me" nor "we see me"; but he can see him.
            names = [name for name, other in PRONOUNS.items() if other.person[0] in {"1", "2"} - {subject.person[0]}]
            names += ["he", "she", "they", *names[:1]]
        return object_pronoun(PRONOUNS[self.random.choice(names)], indirect)

    def setting(self, subject: Phrase, kind: str, verb: Verb) -> Phrase:
        """Draw what a verb needs or allows besides its objects."""
        if verb.frame == "copula":
            if kind == "place" or (subject.has_gender and self.chance(0.65)):
                names = [adjective.en for adjective in ADJECTIVES.values() if kind in adjective.kinds]
                return predicate(self.random.choice(names), subject.agreement)
            return self.location()
        if verb.frame == "direction":
            noun = NOUNS[self.random.choice(DESTINATIONS)]
            return preposition("to", self.noun(noun, determiners=DEFINITE))
        if verb.frame in ("plain", "motion") and self.chance(0.15):
            return preposition("with", self.noun(self.noun_of(["person"]), determiners=DEFINITE))
        if verb.frame != "motion" and verb.en[0] not in STATES and self.chance(0.35 if verb.frame == "plain" else 0.08):
            return self.location()
        return NOTHING

    def finish(
        self,
        subject: Phrase,
        kind: str,
        verb: Verb,
        tense: str,
        *,
        short: bool = False,
        question: bool = False,
        placed: bool = True,
        french_tense: str = "",
    ) -> Phrase:
        """Draw polarity, adverb, objects and setting; `placed` is false where the question is "where"."""
        shown = french_tense or tense
        style = self.pick({"": 7.0, "not": 3.0 * (not question), "adverb": 1.2 * (verb is not ETRE)})
        adverb = self.random.choice(list(ADVERBS)[: 2 if question else 3]) if style == "adverb" else ""
        negated = style == "not" or adverb == "never"
        indirect = verb.frame in ("recipient", "transfer")
        people = indirect or "person" in verb.objects
        pronoun = (indirect or verb.frame == "object") and self.chance(0.4 if people else 0.15)
        pronoun = pronoun and (people or shown != "past")
        direct, clitic, complement, heavy = NOTHING, NOTHING, NOTHING, False
        if pronoun:
            participle = shown == "past"
            clitic = self.clitic(subject.agreement, indirect=indirect, participle=participle, people=people)
        if verb.frame == "transfer" or (verb.frame == "object" and not pronoun):
            direct, heavy = self.object(verb, negated=negated, short=short or indirect)
        if indirect and not pronoun:
            determiners = (*DEFINITE, "a") if negated else ()
            complement += preposition("to", self.noun(self.noun_of(["person"]), determiners=determiners))
        if placed and not heavy and not (short and indirect):
            complement += self.setting(subject, kind, verb)
        timeless = short or heavy or adverb or french_tense or verb is ETRE or verb.en[0] in STATES
        if not timeless and self.chance(0.15):
            complement += time(tense)
        return clause(
            subject, verb, tense, adverb=adverb, negative=style == "not", direct=direct, clitic=clitic,
            indirect=indirect, complement=complement, question=question, french_tense=french_tense,
        )  # fmt: skip

    def statement(self, tense: str = "", french_tense: str = "", short: bool = False) -> Phrase:
        """Draw a declarative clause."""
        tense = tense or self.pick(TENSES)
        verb = self.verb([tense, french_tense or tense])
        subject, kind = self.subject(verb, french_tense or tense, short=short)
        return self.finish(subject, kind, verb, tense, short=short, french_tense=french_tense)

    # Sentences

    def question(self) -> Phrase:
        """Draw a question, with or without a question word."""
        tense, word = self.pick(TENSES), self.pick({"": 6.0, "why": 1.0, "where": 1.0})
        verb = self.verb([tense], frames=("plain", "object", "transfer") if word == "where" else ())
        subject, kind = self.subject(verb, tense, question=True)
        return ask(self.finish(subject, kind, verb, tense, question=True, placed=word != "where"), word)

    def subordinate(self, tense: str = "", short: bool = False) -> Phrase:
        """Draw a main clause and one that begins with because, when or if."""
        short = short or self.chance(0.5)
        link = self.pick({"because": 4.0, "when": 4.0, "if": 2.0})
        if link == "because":
            return self.statement(tense, short=short) + conjunction(link) + self.statement(short=short)
        main = tense or self.pick(TENSES if link == "when" else {"present": 2.0, "future": 3.0})
        if link == "if":
            inner = self.statement("present", short=short)
        elif main == "future":
            inner = self.statement("present", "future", short=short)
        else:
            inner = self.statement(main, short=short)
        # A relative clause before "when" could claim it: "he sees a man who will leave when she arrives".
        return self.statement(main, short=short or link == "when") + conjunction(link) + inner

    def reported(self, nested: bool = False) -> Phrase:
        """Draw what someone thinks, knows, says or hopes, or does not know."""
        verb = self.verb(["present"], frames=("clause",))
        past = "past" in verb.tenses and self.chance(0.4)
        inner_tense = "future" if past or verb.en[0] == "hope" else ""
        inner = self.subordinate(inner_tense, short=True) if nested else self.statement(inner_tense)
        doubt = verb.en[0] == "know" and self.chance(0.6)
        asked = self.chance(0.4 if doubt else 0.2)
        subject, _ = self.subject(verb, "present", short=nested or self.chance(0.6), question=asked)
        complement = conjunction("if" if doubt else "that") + inner
        negative, tense = doubt and not asked, "past" if past else "present"
        body = clause(subject, verb, tense, negative=negative, question=asked, complement=complement)
        return ask(body) if asked else body

    def coordinate(self) -> Phrase:
        """Draw two main clauses."""
        return self.statement() + conjunction(self.random.choice(["and", "but"])) + self.statement()

    def sentence(self) -> Pair:
        """Draw a sentence."""
        shapes: dict[str, Callable[[], Phrase]] = {
            "simple": self.statement,
            "question": self.question,
            "subordinate": self.subordinate,
            "reported": self.reported,
            "coordinate": self.coordinate,
            "nested": lambda: self.reported(nested=True),
        }
        return realise(shapes[self.pick(SHAPES)]())


def word_classes(english: str) -> tuple[str, ...]:
    """Give the class of each word of an English sentence."""
    return tuple(WORD_CLASSES[word] for word in english.split(" "))


def acceptable(pair: Pair) -> bool:
    """Refuse bad lengths, a noun, verb or time used twice, and a "they" which could mean women named before."""
    words = pair.en.split(" ")
    classes = word_classes(pair.en)
    content = [word for word, kind in zip(words, classes, strict=True) if kind in ("noun", "owner", "verb", "time")]
    content = [VERB_OF_FORM.get(word, word) for word in content]
    if len(words) not in LENGTHS or len(pair.fr.split(" ")) not in LENGTHS or len(set(content)) < len(content):
        return False
    return "they" not in words or not {"noun", "owner"} & set(classes[: words.index("they")])


def draw_pool(size: int, seed: int) -> list[Pair]:
    """Draw pairs such that no two have the same source or the same target."""
    sampler = Sampler(seed)
    pool: list[Pair] = []
    translations: dict[str, str] = {}
    seen: set[str] = set()
    while len(pool) < size:
        pair = sampler.sentence()
        assert translations.setdefault(pair.en, pair.fr) == pair.fr, f"two translations: {pair.en}"
        if acceptable(pair) and pair.en not in seen and pair.fr not in seen:
            pool.append(pair)
            seen |= {pair.en, pair.fr}
    return pool


def without_rare_words(pool: list[Pair], least: int) -> list[Pair]:
    """Leave out pairs with a word that occurs in fewer than `least` pairs, until there is none."""
    while True:
        counts = Counter(word for pair in pool for side in (pair.en, pair.fr) for word in set(side.split(" ")))
        kept = [p for p in pool if all(counts[word] >= least for word in f"{p.en} {p.fr}".split(" "))]
        if len(kept) == len(pool):
            return kept
        pool = kept


def make_corpus(seed: int = SEED) -> dict[str, list[Pair]]:
    """Draw training, validation and test sets that share no sentence."""
    pool = without_rare_words(draw_pool(POOL, seed), RARE)
    assert len(pool) >= sum(SIZES.values()), f"only {len(pool)} pairs have no rare word; raise POOL"
    corpus, start = {}, 0
    for split, size in SIZES.items():
        corpus[split] = pool[start : start + size]
        start += size
    return corpus


def write_corpus(folder: Path, corpus: dict[str, list[Pair]]) -> None:
    """Write `SPLIT.en`, `SPLIT.fr` and `SPLIT.align`, one pair a line."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in corpus.items():
        for ending in ("en", "fr", "align"):
            text = "".join(f"{getattr(pair, ending)}\n" for pair in pairs)
            (folder / f"{split}.{ending}").write_bytes(text.encode("utf-8"))


def main() -> None:
    """Write the corpus into the folder given on the command line."""
    parser = argparse.ArgumentParser(description="Write the demo corpus: train, valid and test in English and French.")
    parser.add_argument("output_dir", nargs="?", type=Path, default=DEFAULT_FOLDER, help="default: %(default)s")
    folder = parser.parse_args().output_dir
    corpus = make_corpus()
    write_corpus(folder, corpus)
    print(", ".join(f"{len(pairs)} {split}" for split, pairs in corpus.items()), f"pairs in {folder}")


if __name__ == "__main__":
    main()
