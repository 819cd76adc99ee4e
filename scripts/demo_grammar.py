"""Grammar of the demo corpus: each function builds an English and a French phrase together with their word links."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from demo_lexicon import (
    ADJECTIVES,
    ADVERBS,
    AVOIR,
    CONJUNCTIONS,
    ETRE,
    NOUNS,
    NUMBERS,
    POSSESSIVES,
    PREPOSITIONS,
    QUESTION_WORDS,
    TIMES,
    Pronoun,
    Verb,
    starts_with_vowel,
)

# Two French words written as one, once elision is done.
CONTRACTIONS = {
    ("de", "le"): "du",
    ("de", "les"): "des",
    ("à", "le"): "au",
    ("à", "les"): "aux",
    ("si", "il"): "s'il",
    ("si", "ils"): "s'ils",
}


@dataclass(frozen=True, eq=False)
class English:
    """One English word; two words are the same only if they are the same object."""

    text: str


@dataclass(frozen=True)
class French:
    """One French word, the English words it surely or possibly translates, and its form before a vowel."""

    text: str
    sure: tuple[English, ...] = ()
    possible: tuple[English, ...] = ()
    before_vowel: str | None = None


@dataclass(frozen=True)
class Agreement:
    """What a French verb, participle or adjective agrees with."""

    person: str = "3s"
    feminine: bool = False

    @property
    def plural(self) -> bool:
        return self.person.endswith("p")


@dataclass(frozen=True)
class Phrase:
    """The two sides of a phrase; `has_gender` says that the English decides the gender."""

    en: tuple[English, ...] = ()
    fr: tuple[French, ...] = ()
    agreement: Agreement = Agreement()
    has_gender: bool = True

    def __add__(self, other: "Phrase") -> "Phrase":
        return Phrase(self.en + other.en, self.fr + other.fr, self.agreement, self.has_gender)


NOTHING = Phrase()


@dataclass(frozen=True)
class Pair:
    """A finished sentence pair and its links (English index, French index, sure)."""

    en: str
    fr: str
    links: tuple[tuple[int, int, bool], ...]

    @property
    def align(self) -> str:
        """Write the links as `i-j` (sure) and `ipj` (possible)."""
        return " ".join(f"{i}{'-' if sure else 'p'}{j}" for i, j, sure in self.links)


def _elidable(text: str, sure: tuple[English, ...] = (), possible: tuple[English, ...] = ()) -> French:
    """Make a word whose last letter gives way to an apostrophe before a vowel."""
    return French(text, sure, possible, before_vowel=text[:-1] + "'")


def _words(text: str) -> tuple[English, ...]:
    return tuple(English(word) for word in text.split())


def adjective_form(name: str, agreement: Agreement) -> str:
    """Inflect a French adjective."""
    return ADJECTIVES[name].fr[2 * agreement.plural + agreement.feminine]


def participle_form(verb: Verb, agreement: Agreement) -> str:
    """Inflect a French past participle."""
    form = verb.participle + "e" * agreement.feminine
    return form if form.endswith("s") or not agreement.plural else form + "s"


def _determiner(name: str, agreement: Agreement, noun: English, negated: bool) -> Phrase:
    """Translate a determiner: its form is also the noun's doing, hence the possible link."""
    word, third = English(name), 2 if agreement.plural else int(agreement.feminine)
    sure, possible = (word,), (noun,)
    if name == "the":
        text = ("le", "la", "les")[third]
        french = [French(text, sure, possible) if agreement.plural else _elidable(text, sure, possible)]
    elif name in ("a", "an"):
        # "he does not have a car": il n'a pas de voiture
        french = [_elidable("de", (), (word, noun)) if negated else French(("un", "une")[third], sure, possible)]
    elif name in ("this", "these"):
        french = [French(("ce", "cette", "ces")[third], sure, possible, "cet" if third == 0 else None)]
    elif name == "every":
        french = [French("chaque", sure)]
    elif name == "many":
        french = [French("beaucoup", sure), _elidable("de", (), (word, noun))]
    else:
        forms = POSSESSIVES[name]
        french = [French(forms[third], sure, possible, forms[0] if third == 1 else None)]
    return Phrase((word,), tuple(french))


def noun_phrase(
    noun: str,
    determiner: str = "the",
    adjectives: Sequence[str] = (),
    *,
    plural: bool = False,
    number: str = "",
    owner: Phrase | None = None,
    negated: bool = False,
) -> Phrase:
    """Build a noun phrase; adjectives come in English order, those behind the French noun are reversed.

    `owner` takes the determiner's place ("my sister's car"); `negated` marks the direct object of a negated verb.
    """
    entry = NOUNS[noun]
    agreement = Agreement("3p" if plural else "3s", entry.feminine)
    head = English(entry.en[plural])
    qualities = [(ADJECTIVES[name], English(name)) for name in adjectives]
    modifiers = [
        French(
            adjective_form(adjective.en, agreement),
            (word,),
            before_vowel=None if agreement.plural or agreement.feminine else adjective.before_vowel,
        )
        for adjective, word in qualities
    ]
    before = [french for french, (adjective, _) in zip(modifiers, qualities, strict=True) if adjective.preposed]
    after = [french for french, (adjective, _) in zip(modifiers, qualities, strict=True) if not adjective.preposed]
    count = _words(number)
    inner_en = (*count, *(word for _, word in qualities), head)
    counted = [French(NUMBERS[word.text], (word,)) for word in count]
    inner_fr = (*counted, *before, French(entry.fr[plural], (head,)), *reversed(after))
    if owner is not None:
        # "the king's car": la voiture du roi
        possessor = owner.en[-1]
        text = ("le", "la", "les")[2 if plural else int(entry.feminine)]
        article = French(text, (), (possessor, head)) if plural else _elidable(text, (), (possessor, head))
        french = (article, *inner_fr, _elidable("de", (), (possessor,)), *owner.fr)
        return Phrase(owner.en + inner_en, french, agreement)
    if not determiner:
        return Phrase(inner_en, inner_fr, agreement)
    if determiner == "a" and inner_en[0].text[0] in "aeiou":
        determiner = "an"
    start = _determiner(determiner, agreement, head, negated)
    return Phrase(start.en + inner_en, start.fr + inner_fr, agreement)


def owner_phrase(noun: str, determiner: str, adjectives: Sequence[str] = ()) -> Phrase:
    """Build the possessor of "the old king's car"."""
    phrase = noun_phrase(noun, determiner, adjectives)
    head = phrase.en[-1]
    owner = English(head.text + "'s")

    def swap(words: tuple[English, ...]) -> tuple[English, ...]:
        return tuple(owner if word is head else word for word in words)

    french = tuple(replace(word, sure=swap(word.sure), possible=swap(word.possible)) for word in phrase.fr)
    return Phrase((*phrase.en[:-1], owner), french, phrase.agreement)


def both(first: Phrase, second: Phrase) -> Phrase:
    """Coordinate two noun phrases; the masculine prevails."""
    feminine = first.agreement.feminine and second.agreement.feminine
    return replace(first + conjunction("and") + second, agreement=Agreement("3p", feminine))


def subject_pronoun(pronoun: Pronoun) -> Phrase:
    """Build a subject pronoun."""
    word = English(pronoun.subject)
    french = _elidable("je", (word,)) if pronoun.fr[0] == "je" else French(pronoun.fr[0], (word,))
    return Phrase((word,), (french,), Agreement(pronoun.person, pronoun.feminine), pronoun.has_gender)


def object_pronoun(pronoun: Pronoun, indirect: bool = False) -> Phrase:
    """Build an object pronoun ("him", "to him"), which stands before the French verb."""
    word = English(pronoun.object)
    to = _words("to") if indirect else ()
    text = pronoun.fr[2 if indirect else 1]
    french = _elidable(text, (word,), to) if text in ("me", "le", "la") else French(text, (word,), to)
    return Phrase((*to, word), (french,), Agreement(pronoun.person, pronoun.feminine))


def preposition(name: str, phrase: Phrase) -> Phrase:
    """Put a preposition before a noun phrase."""
    english = _words(name)
    key = english[1] if name == "in front of" else english[0]
    others = tuple(word for word in english if word is not key)
    french = []
    for text in PREPOSITIONS[name].split():
        if text.endswith("*"):
            french.append(French(text[:-1], (key,), others))
        else:
            french.append(_elidable(text, (), english) if text == "de" else French(text, (), english))
    return Phrase(english, tuple(french)) + phrase


def conjunction(name: str) -> Phrase:
    """Build a conjunction; "parce que" and "que" elide."""
    word = English(name)
    first, *rest = CONJUNCTIONS[name].split()
    french = [_elidable(first, (word,)) if first == "que" else French(first, (word,))]
    french += [_elidable(text, (), (word,)) for text in rest]
    return Phrase((word,), tuple(french))


def time(tense: str) -> Phrase:
    """Build the adverb of time that goes with a tense."""
    english, french = TIMES[tense]
    word = English(english)
    return Phrase((word,), (French(french, (word,)),))


def predicate(name: str, agreement: Agreement) -> Phrase:
    """Build the adjective after "to be"."""
    word = English(name)
    return Phrase((word,), (French(adjective_form(name, agreement), (word,)),))


def _be_form(person: str, tense: str) -> str:
    if tense == "future":
        return "be"
    return {"1s": "am", "3s": "is"}.get(person, "are")


def _english_verb(verb: Verb, person: str, tense: str, bare: bool) -> tuple[str, str]:
    """Give the auxiliary (or nothing) and the main verb; `bare` calls for an auxiliary even in a plain tense."""
    if verb is ETRE:
        return ("will" if tense == "future" else ""), _be_form(person, tense)
    if tense == "future":
        return "will", verb.en[0]
    if not bare:
        return "", verb.en[2] if tense == "past" else verb.en[1 if person == "3s" else 0]
    return ("did" if tense == "past" else "does" if person == "3s" else "do"), verb.en[0]


@dataclass(frozen=True)
class VerbWords:
    """The English words of a verb group which French words link to."""

    main: English
    auxiliary: tuple[English, ...]
    particle: tuple[English, ...]
    negation: tuple[English, ...]  # "not" or "never"
    adverb: tuple[English, ...]


def _french_verb(
    verb: Verb, words: VerbWords, subject: Agreement, tense: str, clitic: Phrase, preceding: Agreement | None
) -> tuple[French, ...]:
    """Build ne, clitic, finite verb, pas or adverb, participle; `preceding` is a direct object before the verb."""
    around = words.auxiliary + words.particle
    before: list[French] = list(clitic.fr)
    if words.negation:
        before.insert(0, _elidable("ne", (), words.negation + words.auxiliary))
    middle = [French(ADVERBS[word.text], (word,)) for word in words.adverb]
    middle += [
        French("pas", (word,), words.auxiliary) if word.text == "not" else French("jamais", (word,))
        for word in words.negation
    ]
    if tense != "past":
        forms = verb.present if tense == "present" else verb.future
        return (*before, French(forms[subject.person], (words.main,), around), *middle)
    auxiliary = (ETRE if verb.with_etre else AVOIR).present[subject.person]
    ending = subject if verb.with_etre else preceding or Agreement()
    participle = French(participle_form(verb, ending), (words.main,), around)
    return (*before, French(auxiliary, (), (words.main, *words.auxiliary)), *middle, participle)


def clause(
    subject: Phrase,
    verb: Verb,
    tense: str,
    *,
    adverb: str = "",
    negative: bool = False,
    direct: Phrase = NOTHING,
    clitic: Phrase = NOTHING,
    indirect: bool = False,
    complement: Phrase = NOTHING,
    gap: Agreement | None = None,
    question: bool = False,
    french_tense: str = "",
) -> Phrase:
    """Build a clause; an empty subject makes a relative clause on the subject, `gap` one on the direct object.

    `direct` is a noun phrase; `clitic` is a pronoun, which French puts before the verb; `indirect` says that it is an
    indirect object, with which no participle agrees; `complement` is all that follows. `french_tense` differs from
    `tense` only after "when" in the future: "when he arrives" is quand il arrivera.
    """
    assert not (negative and (question or adverb)), "neither negative questions nor adverbs under negation"
    auxiliary, main = _english_verb(verb, subject.agreement.person, tense, negative or question)
    words = VerbWords(
        English(main),
        _words(auxiliary),
        _words(verb.particle),
        _words("not" if negative else "never" if adverb == "never" else ""),
        _words(adverb) if adverb != "never" else (),
    )
    nots = words.negation if negative else ()
    adverbs = () if negative else words.adverb + words.negation
    opening: tuple[English, ...] = ()
    if verb is ETRE and not auxiliary:
        opening, rest = ((words.main,), ()) if question else ((), (words.main, *nots))
    elif question:
        opening, rest = words.auxiliary, (*adverbs, words.main)
    else:
        rest = (*words.auxiliary, *nots, *adverbs, words.main)
    preceding = gap if gap else clitic.agreement if clitic.en and not indirect else None
    french = _french_verb(verb, words, subject.agreement, french_tense or tense, clitic, preceding)
    body = Phrase(opening + subject.en + rest + words.particle, subject.fr + french)
    return body + direct + replace(clitic, fr=()) + complement


def ask(asked: Phrase, word: str = "") -> Phrase:
    """Turn a clause in question order into a question with est-ce que."""
    opening, mark = asked.en[0], English("?")
    asker = _words(word)
    pronoun = tuple(French(QUESTION_WORDS[text.text], (text,)) for text in asker)
    est_ce_que = (French("est-ce", (), (opening,)), _elidable("que", (), (opening,)))
    return Phrase((*asker, *asked.en, mark), (*pronoun, *est_ce_que, *asked.fr, French("?", (mark,))))


def relative(head: Phrase, body: Phrase, *, person: bool, on_subject: bool) -> Phrase:
    """Attach a relative clause to a noun phrase."""
    word = English("who" if person and on_subject else "that")
    french = French("qui", (word,)) if on_subject else _elidable("que", (word,))
    return replace(head + Phrase((word,), (french,)) + body, agreement=head.agreement)


def _join(first: French, second: French, text: str, second_leads: bool) -> French:
    """Write two words as one, whose only sure link is that of the leading part."""
    leader, other = (second, first) if second_leads else (first, second)
    sure = leader.sure or other.sure
    linked = (*first.sure, *first.possible, *second.sure, *second.possible)
    return French(text, sure, tuple(word for word in linked if word not in sure))


def spell(words: Sequence[French]) -> list[French]:
    """Apply elision, the forms before a vowel, and contraction, from the last word to the first."""
    spelt: list[French] = []
    for word in reversed(words):
        following = spelt[0] if spelt else None
        if following and word.before_vowel and starts_with_vowel(following.text):
            if word.before_vowel.endswith("'"):
                spelt[0] = _join(word, following, word.before_vowel + following.text, second_leads=True)
                continue
            word = replace(word, text=word.before_vowel)
        elif following and (word.text, following.text) in CONTRACTIONS:
            spelt[0] = _join(word, following, CONTRACTIONS[word.text, following.text], second_leads=False)
            continue
        spelt.insert(0, word)
    return spelt


def realise(phrase: Phrase) -> Pair:
    """Write a phrase out as two sentences and their links."""
    position = {word: index for index, word in enumerate(phrase.en)}
    french = spell(phrase.fr)
    links: dict[tuple[int, int], bool] = {}
    for column, word in enumerate(french):
        links |= {(position[source], column): False for source in word.possible}
        links |= {(position[source], column): True for source in word.sure}
    ordered = tuple((i, j, sure) for (i, j), sure in sorted(links.items()))
    return Pair(" ".join(word.text for word in phrase.en), " ".join(word.text for word in french), ordered)
