"""The demo corpus: what its files promise, and the rules of the grammar behind them."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import sacrebleu

ROOT = Path(__file__).resolve().parents[2]

import demo_grammar as grammar  # noqa: E402
import demo_lexicon as lexicon  # noqa: E402
import make_demo_corpus as generator  # noqa: E402

FOLDER = ROOT / "data" / "demo"
SIZES = {"train": 12_000, "valid": 500, "test": 500}
EXAMPLE = ("the small dog does not see the red car", "le petit chien ne voit pas la voiture rouge")
CONSTRUCTIONS = (
    "agreement",
    "adjective after noun",
    "adjective before noun",
    "stack reversed",
    "negation",
    "object pronoun before verb",
    "elision",
    "contraction",
    "question",
    "relative on subject",
    "relative on object",
    "because, when, if",
    "that after verb",
    "past",
    "future",
    "number",
)

Links = dict[tuple[int, int], bool]


@dataclass(frozen=True)
class Line:
    """One pair as it stands in the files; `links` maps (English, French) to sure."""

    en: str
    fr: str
    links: Links

    @property
    def en_words(self) -> list[str]:
        return self.en.split(" ")

    @property
    def fr_words(self) -> list[str]:
        return self.fr.split(" ")


def read(split: str, ending: str) -> list[str]:
    text = (FOLDER / f"{split}.{ending}").read_bytes().decode("utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


def parse_links(text: str) -> Links:
    links: Links = {}
    for link in text.split(" "):
        match = re.fullmatch(r"(\d+)([-p])(\d+)", link)
        assert match, f"not a link: {link!r} in {text!r}"
        place = int(match[1]), int(match[3])
        assert place not in links, f"{link} twice in {text!r}"
        links[place] = match[2] == "-"
    assert list(links) == sorted(links), f"not sorted: {text!r}"
    return links


@pytest.fixture(scope="module")
def corpus() -> dict[str, list[Line]]:
    """The committed files."""
    return {
        split: [
            Line(en, fr, parse_links(align))
            for en, fr, align in zip(read(split, "en"), read(split, "fr"), read(split, "align"), strict=True)
        ]
        for split in SIZES
    }


@pytest.fixture(scope="module")
def everything(corpus: dict[str, list[Line]]) -> list[Line]:
    return [line for lines in corpus.values() for line in lines]


def verb(name: str, frame: str = "") -> lexicon.Verb:
    return next(verb for verb in lexicon.VERBS if verb.en[0] == name and frame in ("", verb.frame))


def test_regenerating_gives_the_same_bytes(tmp_path: Path) -> None:
    generator.write_corpus(tmp_path / "demo", generator.make_corpus())
    names = {path.name for path in (tmp_path / "demo").iterdir()}
    assert names == {f"{split}.{ending}" for split in SIZES for ending in ("en", "fr", "align")}
    for name in sorted(names):
        assert (tmp_path / "demo" / name).read_bytes() == (FOLDER / name).read_bytes(), name


def test_another_seed_gives_another_corpus() -> None:
    first, again, other = (generator.draw_pool(50, seed) for seed in (1, 1, 2))
    assert [pair.en for pair in first] == [pair.en for pair in again] != [pair.en for pair in other]


def test_sizes(corpus: dict[str, list[Line]]) -> None:
    assert {split: len(lines) for split, lines in corpus.items()} == SIZES


@pytest.mark.parametrize("side", ["en", "fr"])
def test_no_sentence_occurs_twice(everything: list[Line], side: str) -> None:
    """Stronger than asked: neither within a set nor between two, so nothing of valid or test is in training."""
    [(sentence, count)] = Counter(getattr(line, side) for line in everything).most_common(1)
    assert count == 1, sentence


def test_french_is_a_function_of_english(everything: list[Line]) -> None:
    translations = {line.en: line.fr for line in everything}
    sampler = generator.Sampler(seed=99)
    for _ in range(5_000):
        pair = sampler.sentence()
        assert translations.setdefault(pair.en, pair.fr) == pair.fr, pair.en


@pytest.mark.parametrize("side", ["en", "fr"])
def test_words(corpus: dict[str, list[Line]], side: str) -> None:
    counts = {
        split: Counter(word for line in lines for word in getattr(line, side).split(" "))
        for split, lines in corpus.items()
    }
    assert 250 <= len(counts["train"]) <= 650
    assert min(counts["train"].values()) >= 10
    assert set(counts["valid"]) | set(counts["test"]) <= set(counts["train"])
    assert all(re.fullmatch(r"[a-zàâçéèêëîïôùûœ'-]+|\?", word) for word in counts["train"])


def test_lengths(corpus: dict[str, list[Line]], everything: list[Line]) -> None:
    assert {len(words) for line in everything for words in (line.en_words, line.fr_words)} <= set(range(3, 26))
    test = [len(line.en_words) for line in corpus["test"]]
    assert 0.30 <= sum(length > 12 for length in test) / len(test) <= 0.45
    assert 10 <= sum(test) / len(test) <= 12


def test_links_are_in_range_and_reach_every_word(everything: list[Line]) -> None:
    for line in everything:
        rows, columns = {i for i, _ in line.links}, {j for _, j in line.links}
        assert rows == set(range(len(line.en_words))), line.en
        assert columns == set(range(len(line.fr_words))), line.fr


def test_content_words_have_a_sure_link(everything: list[Line]) -> None:
    content = {"noun", "owner", "verb", "adjective", "number", "adverb"}
    for line in everything:
        sure = {i for (i, _), is_sure in line.links.items() if is_sure}
        classes = generator.word_classes(line.en)
        assert {i for i, name in enumerate(classes) if name in content} <= sure, line.en


def test_sure_links_of_nouns_agree_with_the_lexicon(everything: list[Line]) -> None:
    """Checks the files against the word list: an index that is off by one would link a noun to something else."""
    french = {en: fr for noun in lexicon.NOUNS.values() for en, fr in zip(noun.en, noun.fr, strict=True)}
    for line in everything:
        for (i, j), is_sure in line.links.items():
            if is_sure and line.en_words[i] in french:
                assert line.fr_words[j].split("'")[-1] == french[line.en_words[i]], line


def test_elided_article_is_linked_to_both(everything: list[Line]) -> None:
    seen = 0
    for line in everything:
        for j, word in enumerate(line.fr_words):
            if word == "l'homme" and "the man" in line.en:
                linked = {line.en_words[i]: is_sure for (i, column), is_sure in line.links.items() if column == j}
                assert linked.get("man", linked.get("man's")) is True
                assert {"man", "the"} <= set(linked) or "man's" in linked
                seen += linked.get("the") is False
    assert seen >= 20


def test_word_by_word_translation_is_poor(corpus: dict[str, list[Line]]) -> None:
    """The likeliest gold link of each word, sure ones first: BLEU on the corpus's own words (tokenize none)."""
    counts: dict[bool, dict[str, Counter[str]]] = {True: defaultdict(Counter), False: defaultdict(Counter)}
    for line in corpus["train"]:
        for (i, j), is_sure in line.links.items():
            counts[is_sure][line.en_words[i]][line.fr_words[j]] += 1
    words = counts[True].keys() | counts[False].keys()
    lexical = {word: (counts[True].get(word) or counts[False][word]).most_common(1)[0][0] for word in words}
    hypotheses = [" ".join(lexical[word] for word in line.en_words) for line in corpus["test"]]
    references = [line.fr for line in corpus["test"]]
    assert sacrebleu.corpus_bleu(references, [references], tokenize="none", force=True).score == pytest.approx(100)
    score = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True).score
    assert 5 < score < 35


def test_a_fifth_of_the_test_set_has_an_unseen_sequence_of_word_classes(corpus: dict[str, list[Line]]) -> None:
    seen = {generator.word_classes(line.en) for line in corpus["train"]}
    unseen = [line for line in corpus["test"] if generator.word_classes(line.en) not in seen]
    assert len(unseen) / len(corpus["test"]) >= 0.20


def alignment_error(lines: list[Line], read_links: Callable[[Line], set[tuple[int, int]]]) -> float:
    """Alignment error rate of one reading of each line (Och and Ney 2003)."""
    hits = size = 0
    for line in lines:
        links, sure = read_links(line), {place for place, is_sure in line.links.items() if is_sure}
        hits += len(links & sure) + len(links & line.links.keys())
        size += len(links) + len(sure)
    return 1 - hits / size


def best_links(line: Line) -> set[tuple[int, int]]:
    """Read at most one English word for each French one, by a sure link where there is one."""
    best: dict[int, tuple[int, int]] = {}
    for (i, j), is_sure in line.links.items():
        if j not in best or (is_sure and not line.links[best[j]]):
            best[j] = (i, j)
    return set(best.values())


def diagonal_links(line: Line) -> set[tuple[int, int]]:
    """Link by position alone."""
    slope = (len(line.en_words) - 1) / (len(line.fr_words) - 1)
    return {(round(j * slope), j) for j in range(len(line.fr_words))}


def test_one_link_per_french_word_can_reach_the_gold(corpus: dict[str, list[Line]]) -> None:
    assert alignment_error(corpus["test"], best_links) <= 0.05


def test_the_gold_is_not_reached_by_position(corpus: dict[str, list[Line]]) -> None:
    """Else alignment error would tell nothing; nor would it if few links were sure."""
    assert alignment_error(corpus["test"], diagonal_links) >= 0.35
    num_sure = sum(sum(line.links.values()) for line in corpus["test"])
    assert num_sure >= 0.7 * sum(len(line.fr_words) for line in corpus["test"])


# Constructions, found on the surface of the committed files

_ADJECTIVE_FORMS = {form for adjective in lexicon.ADJECTIVES.values() for form in adjective.fr}
_INFLECTED = _ADJECTIVE_FORMS - {adjective.fr[0] for adjective in lexicon.ADJECTIVES.values()}
_BEFORE = {f for a in lexicon.ADJECTIVES.values() if a.preposed for f in (*a.fr, a.before_vowel or a.fr[0])}
_AFTER = _ADJECTIVE_FORMS - _BEFORE
_NOUN_FORMS = {form for noun in lexicon.NOUNS.values() for form in noun.fr}
_FUTURES = {form for verb in lexicon.VERBS for form in verb.future.values()}
_AUXILIARIES = "|".join([*lexicon.AVOIR.present.values(), *lexicon.ETRE.present.values()])
_PARTICIPLES = "|".join(sorted({verb.participle for verb in lexicon.VERBS}))
_PATTERNS = {
    "negation": r"\b(ne |n')(\S+ ){1,2}pas\b",
    "elision": r"\b(l|j|n|d|m|qu|s)'\w",
    "contraction": r"\b(du|des|au|aux)\b",
    "question": r"\best-ce qu(e |')\S.* \?$",
    "relative on subject": r"\bqui\b",
    "because, when, if": r"\b(parce qu(e |')|quand |si |s'ils? )",
    "past": rf"\b({_AUXILIARIES}) ((pas|jamais|souvent|toujours) )?({_PARTICIPLES})(e|s|es)?\b",
}


def has_reversed_stack(line: Line) -> bool:
    """Say whether two neighbouring English adjectives stand the other way round in French."""
    sure = {i: j for (i, j), is_sure in line.links.items() if is_sure}
    classes = generator.word_classes(line.en)
    pairs = [i for i in range(len(classes) - 1) if classes[i] == classes[i + 1] == "adjective"]
    return any(sure[i] == sure[i + 1] + 1 for i in pairs)


def has_early_pronoun(line: Line) -> bool:
    """Say whether an object pronoun that follows the English verb precedes the French one."""
    sure = {i: j for (i, j), is_sure in line.links.items() if is_sure}
    verbs = [i for i, name in enumerate(generator.word_classes(line.en)) if name == "verb"]
    for i, word in enumerate(line.en_words):
        if word in ("me", "him", "her", "us", "them", "you") and any(v < i for v in verbs):
            linked = [j for (row, j) in line.links if row == i]
            before = max(v for v in verbs if v < i)
            if all(line.fr_words[j] in ("me", "le", "la", "lui", "nous", "vous", "les", "leur") for j in linked):
                return linked[0] < sure[before]
    return False


def constructions(line: Line) -> set[str]:
    found = {name for name, pattern in _PATTERNS.items() if re.search(pattern, line.fr)}
    classes = generator.word_classes(line.en)
    pairs = list(pairwise(line.fr_words))
    that = [classes[i - 1] for i, word in enumerate(line.en_words) if word == "that"]
    checks = {
        "agreement": bool(set(line.fr_words) & _INFLECTED),
        "adjective after noun": any(a.split("'")[-1] in _NOUN_FORMS and b in _AFTER for a, b in pairs),
        "adjective before noun": any(a in _BEFORE and b in _NOUN_FORMS for a, b in pairs),
        "stack reversed": has_reversed_stack(line),
        "object pronoun before verb": has_early_pronoun(line),
        "relative on object": "noun" in that and bool(re.search(r"\bqu(e |')", line.fr)),
        "that after verb": "verb" in that and bool(re.search(r"\bqu(e |')", line.fr)),
        "future": "will" in line.en_words and bool({word.split("'")[-1] for word in line.fr_words} & _FUTURES),
        "number": "number" in classes and bool(set(line.fr_words) & set(lexicon.NUMBERS.values())),
    }
    return found | {name for name, holds in checks.items() if holds}


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_every_construction_is_in_the_test_set(corpus: dict[str, list[Line]], name: str) -> None:
    found = sum(name in constructions(line) for line in corpus["test"])
    assert found / len(corpus["test"]) >= 0.03


def test_the_example_of_the_documentation(corpus: dict[str, list[Line]]) -> None:
    dog, car = grammar.noun_phrase("dog", "the", ["small"]), grammar.noun_phrase("car", "the", ["red"])
    pair = grammar.realise(grammar.clause(dog, verb("see"), "present", negative=True, direct=car))
    assert (pair.en, pair.fr) == EXAMPLE
    assert pair.align == "0-0 1-1 2p0 2-2 3p3 3p4 3p5 4p3 4-5 5-4 6-6 7-8 8p6 8-7"
    for side, sentence in zip(("en", "fr"), EXAMPLE, strict=True):
        known = {word for line in corpus["train"] for word in getattr(line, side).split(" ")}
        assert set(sentence.split(" ")) <= known


# Spelling and grammar of both sides, checked without the generator's own rules: a pattern, and a mistake it must find


def _any(words: Iterable[str]) -> str:
    return "(?:" + "|".join(sorted(words, key=len, reverse=True)) + r")\b"


_NOUNS = list(lexicon.NOUNS.values())
_ASPIRATE = "h(?:éros|ache|uit)"
_VOWEL = rf"(?!{_ASPIRATE})[aeiouyàâéèêëîïôûùœh]"
_CONSONANT = rf"(?:{_ASPIRATE}|[^aeiouyàâéèêëîïôûùœh])"
_ONLY_PLURAL = _any(noun.fr[1] for noun in _NOUNS if noun.fr[0] != noun.fr[1])
_ONLY_SINGULAR = _any(noun.fr[0] for noun in _NOUNS if noun.fr[0] != noun.fr[1])
_MASCULINE, _FEMININE = (_any(f for n in _NOUNS if n.feminine is feminine for f in n.fr) for feminine in (False, True))
_MISTAKES = {
    "elision": ("fr", rf"\b(le|la|je|ne|que|de|me) {_VOWEL}", "il ne aime pas le chien"),
    "no elision": ("fr", rf"'{_CONSONANT}", "l'héros dort"),
    "contraction": ("fr", r"\b(de|à) les?\b", "près de le pont"),
    "s'il": ("fr", r"\bsi ils?\b", "elle dort si il travaille"),
    "before a vowel": ("fr", rf"\b(ce|ma|sa) {_VOWEL}", "sa école"),
    "vieux": ("fr", rf"\b(beau|nouveau|vieux) (?={_VOWEL}){_ONLY_SINGULAR}", "un vieux ami dort"),
    "before a consonant": ("fr", rf"\b(bel|nouvel|vieil|cet) {_CONSONANT}", "cet héros"),
    "pas de": ("fr", rf"\b(pas|jamais) (({_PARTICIPLES})\w* )?une?\b", "il n'a pas une voiture"),
    "no gender": ("fr", r"\b(suis|sommes|êtes) (\w+ )?(allé|arrivé|parti)(e|s|es)?\b", "je suis arrivé"),
    "singular": ("fr", rf"\b(un|une|le|la|ce|cette|chaque|mon|ma|son|sa|notre|votre) {_ONLY_PLURAL}", "le chevaux"),
    "plural": ("fr", rf"\b(les|des|aux|ces|mes|ses|nos|vos|deux|trois|dix|vingt) {_ONLY_SINGULAR}", "les cheval"),
    "masculine": ("fr", rf"\b(un|le|ce|du|au) {_FEMININE}", "du maison"),
    "feminine": ("fr", rf"\b(une|la|cette|ma|sa) {_MASCULINE}", "une homme"),
    "a": ("en", r"\ba [aeiou]", "a apple"),
    "an": ("en", r"\ban [^aeiou]", "an pear"),
    "he see": ("en", r"^(he|she) (see|like|find|buy|eat|go|have|are|sleep|do)\b", "he see the dog"),
    "i sees": ("en", r"\b(i|we|they) (sees|likes|finds|buys|eats|goes|has|is|does|knows)\b", "they sees me"),
    "does sees": ("en", r"\b(did|does|do|will) not (sees|saw|bought|went|has|is|finds|found)\b", "he does not sees"),
    "i see me": ("en", r"\b(i|we) (do not |will )?(see|like|help|follow|know) (me|us)\b", "we will help us"),
}


@pytest.mark.parametrize("rule", list(_MISTAKES))
def test_no_mistake_of_this_kind(everything: list[Line], rule: str) -> None:
    side, pattern, mistake = _MISTAKES[rule]
    assert re.search(pattern, mistake)
    assert [getattr(line, side) for line in everything if re.search(pattern, getattr(line, side))][:5] == []


def test_adjectives_agree_with_their_noun(everything: list[Line]) -> None:
    indices = defaultdict(set)
    for noun in _NOUNS:
        for plural, form in enumerate(noun.fr):
            indices[form].add(2 * plural + noun.feminine)
    forms = defaultdict(set)
    for adjective in lexicon.ADJECTIVES.values():
        for index, form in enumerate(adjective.fr):
            forms[form].add(index)
        forms[adjective.before_vowel or adjective.fr[0]].add(0)
    checked = 0
    for line in everything:
        words = [word.split("'")[-1] for word in line.fr_words]
        for first, second in pairwise(words):
            noun_form, adjective_form = (first, second) if first in indices else (second, first)
            if noun_form in indices and adjective_form in forms:
                assert indices[noun_form] & forms[adjective_form], line.fr
                checked += 1
    assert checked > 5_000


def test_verbs_agree_with_their_pronoun(everything: list[Line]) -> None:
    persons = {"je": "1s", "il": "3s", "elle": "3s", "ils": "3p"}
    clitics = {"ne", "me", "le", "la", "les", "lui", "leur", "nous", "vous"}
    checked = 0
    for line in everything:
        for j, word in enumerate(line.fr_words[:-1]):
            if (person := persons.get(word.split("'")[-1])) is None:
                continue
            following = next(other for other in line.fr_words[j + 1 :] if other not in clitics).split("'")[-1]
            assert following in {form for verb in lexicon.VERBS for form in (verb.present[person], verb.future[person])}
            checked += 1
    assert checked > 5_000


HE, SHE, MYSELF, THEY = (grammar.subject_pronoun(lexicon.PRONOUNS[name]) for name in ("he", "she", "i", "they"))
HIM, HER, THEM = (grammar.object_pronoun(lexicon.PRONOUNS[name]) for name in ("he", "she", "they"))


def realised(phrase: grammar.Phrase) -> tuple[str, str]:
    pair = grammar.realise(phrase)
    return pair.en, pair.fr


@pytest.mark.parametrize(
    ("noun", "determiner", "adjectives", "plural", "english", "french"),
    [
        ("man", "the", ["old"], False, "the old man", "le vieil homme"),
        ("man", "", ["old"], True, "two old men", "deux vieux hommes"),
        ("hero", "the", ["old"], False, "the old hero", "le vieux héros"),
        ("hotel", "the", [], False, "the hotel", "l'hôtel"),
        ("bird", "a", ["beautiful"], False, "a beautiful bird", "un bel oiseau"),
        ("bird", "this", [], False, "this bird", "cet oiseau"),
        ("school", "my", [], False, "my school", "mon école"),
        ("school", "my", ["new"], False, "my new school", "ma nouvelle école"),
        ("chair", "the", ["heavy", "green"], False, "the heavy green chair", "la chaise verte lourde"),
        (
            "car",
            "the",
            ["big", "red", "american"],
            False,
            "the big red american car",
            "la grande voiture américaine rouge",
        ),
        ("egg", "a", ["expensive"], False, "an expensive egg", "un œuf cher"),
        ("child", "many", [], True, "many children", "beaucoup d'enfants"),
    ],
)
def test_noun_phrases(
    noun: str, determiner: str, adjectives: list[str], plural: bool, english: str, french: str
) -> None:
    number = "" if determiner else "two"
    phrase = grammar.noun_phrase(noun, determiner, adjectives, plural=plural, number=number)
    assert realised(phrase) == (english, french)


def test_prepositions_contract_and_owners_follow() -> None:
    car = grammar.noun_phrase("car", adjectives=["red"], owner=grammar.owner_phrase("king", "the", ["old"]))
    assert realised(car) == ("the old king's red car", "la voiture rouge du vieux roi")
    near = grammar.preposition("near", grammar.noun_phrase("station", plural=True))
    assert realised(near) == ("near the stations", "près des gares")
    to = grammar.preposition("to", grammar.noun_phrase("hospital"))
    assert realised(to) == ("to the hospital", "à l'hôpital")


def test_participles_agree_where_french_asks_for_it() -> None:
    see, arrive = verb("see"), verb("arrive")
    assert realised(grammar.clause(SHE, arrive, "past")) == ("she arrived", "elle est arrivée")
    assert realised(grammar.clause(MYSELF, see, "past", clitic=HER)) == ("i saw her", "je l'ai vue")
    unseen = grammar.clause(MYSELF, see, "past", negative=True, clitic=HIM)
    assert realised(unseen) == ("i did not see him", "je ne l'ai pas vu")
    keys = grammar.noun_phrase("key", plural=True)
    lost = grammar.clause(HE, verb("lose"), "past", gap=keys.agreement)
    phrase = grammar.relative(keys, lost, person=False, on_subject=False)
    assert realised(phrase) == ("the keys that he lost", "les clés qu'il a perdues")
    women = grammar.both(grammar.noun_phrase("woman"), grammar.noun_phrase("man"))
    assert realised(grammar.clause(women, arrive, "past"))[1] == "la femme et l'homme sont arrivés"


def test_object_pronouns_and_indirect_objects() -> None:
    to_her = grammar.object_pronoun(lexicon.PRONOUNS["she"], indirect=True)
    book = grammar.noun_phrase("book")
    gave = grammar.clause(HE, verb("give"), "past", direct=book, clitic=to_her, indirect=True)
    assert realised(gave) == ("he gave the book to her", "il lui a donné le livre")
    seen = grammar.clause(HE, verb("see"), "present", negative=True, clitic=THEM)
    assert realised(seen) == ("he does not see them", "il ne les voit pas")
    sought = grammar.clause(SHE, verb("look"), "future", clitic=HIM, adverb="never")
    assert realised(sought) == ("she will never look for him", "elle ne le cherchera jamais")


def test_clauses_meet_as_french_asks_for_it() -> None:
    sleep, arrive, work = verb("sleep"), verb("arrive"), verb("work")
    later = grammar.clause(HE, arrive, "present", french_tense="future")
    when = grammar.clause(SHE, sleep, "future") + grammar.conjunction("when") + later
    assert realised(when) == ("she will sleep when he arrives", "elle dormira quand il arrivera")
    he_works, she_works = (grammar.clause(who, work, "present") for who in (HE, SHE))
    assert realised(grammar.conjunction("if") + he_works) == ("if he works", "s'il travaille")
    assert realised(grammar.conjunction("if") + she_works) == ("if she works", "si elle travaille")
    assert realised(grammar.conjunction("because") + he_works)[1] == "parce qu'il travaille"
    asked = grammar.ask(grammar.clause(THEY, work, "past", question=True), "why")
    assert realised(asked) == ("why did they work ?", "pourquoi est-ce qu'ils ont travaillé ?")


def test_indefinite_object_of_a_negated_verb() -> None:
    car = grammar.noun_phrase("car", "a", negated=True)
    bird = grammar.noun_phrase("bird", "a", negated=True)
    have = verb("have")
    assert realised(grammar.clause(HE, have, "present", negative=True, direct=car))[1] == "il n'a pas de voiture"
    assert realised(grammar.clause(MYSELF, have, "present", negative=True, direct=bird))[1] == "je n'ai pas d'oiseau"
