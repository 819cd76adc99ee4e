"""Words of the demo corpus: what English and French say, how they inflect, and what goes with what."""

from dataclasses import dataclass

PERSONS = ("1s", "3s", "1p", "2p", "3p")
_FUTURE_ENDINGS = ("ai", "a", "ons", "ez", "ont")
_ER_ENDINGS = ("e", "e", "ons", "ez", "ent")


@dataclass(frozen=True)
class Noun:
    """A noun with both numbers; `kind` is the class that verbs and adjectives select."""

    kind: str
    en: tuple[str, str]
    fr: tuple[str, str]
    feminine: bool


@dataclass(frozen=True)
class Adjective:
    """An adjective; `fr` holds masculine, feminine, masculine plural, feminine plural."""

    en: str
    fr: tuple[str, str, str, str]
    before_vowel: str | None
    preposed: bool
    rank: int  # place in an English stack: size and beauty, quality, colour, origin
    kinds: frozenset[str]


@dataclass(frozen=True)
class Verb:
    """A verb with its forms on both sides and the classes of its subject and object."""

    en: tuple[str, str, str]  # base, third person singular, past
    particle: str
    present: dict[str, str]
    future: dict[str, str]
    participle: str
    with_etre: bool
    frame: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    tenses: tuple[str, ...]


# kind | English singular, plural | French singular, plural | gender
# Kinds: person, animal, thing, food, opening (what one opens and closes), place (what one is in), spot (or only near).
_NOUNS = """
person  | man men           | homme hommes             | m
person  | woman women       | femme femmes             | f
person  | boy boys          | garçon garçons           | m
person  | girl girls        | fille filles             | f
person  | child children    | enfant enfants           | m
person  | friend friends    | ami amis                 | m
person  | neighbour neighbours | voisin voisins        | m
person  | teacher teachers  | professeur professeurs   | m
person  | doctor doctors    | médecin médecins         | m
person  | king kings        | roi rois                 | m
person  | queen queens      | reine reines             | f
person  | nurse nurses      | infirmière infirmières   | f
person  | hero heroes       | héros héros              | m
person  | brother brothers  | frère frères             | m
person  | sister sisters    | sœur sœurs               | f
person  | aunt aunts        | tante tantes             | f
animal  | dog dogs          | chien chiens             | m
animal  | cat cats          | chat chats               | m
animal  | horse horses      | cheval chevaux           | m
animal  | bird birds        | oiseau oiseaux           | m
animal  | cow cows          | vache vaches             | f
animal  | mouse mice        | souris souris            | f
animal  | wolf wolves       | loup loups               | m
thing   | car cars          | voiture voitures         | f
thing   | book books        | livre livres             | m
thing   | letter letters    | lettre lettres           | f
thing   | chair chairs      | chaise chaises           | f
thing   | key keys          | clé clés                 | f
thing   | hat hats          | chapeau chapeaux         | m
thing   | boat boats        | bateau bateaux           | m
thing   | bottle bottles    | bouteille bouteilles     | f
thing   | knife knives      | couteau couteaux         | m
thing   | newspaper newspapers | journal journaux      | m
thing   | umbrella umbrellas | parapluie parapluies    | m
thing   | axe axes          | hache haches             | f
thing   | flower flowers    | fleur fleurs             | f
food    | apple apples      | pomme pommes             | f
food    | cake cakes        | gâteau gâteaux           | m
food    | egg eggs          | œuf œufs                 | m
food    | orange oranges    | orange oranges           | f
opening | door doors        | porte portes             | f
opening | window windows    | fenêtre fenêtres         | f
opening | box boxes         | boîte boîtes             | f
place   | garden gardens    | jardin jardins           | m
place   | house houses      | maison maisons           | f
place   | park parks        | parc parcs               | m
place   | village villages  | village villages         | m
place   | forest forests    | forêt forêts             | f
place   | castle castles    | château châteaux         | m
place   | hotel hotels      | hôtel hôtels             | m
place   | school schools    | école écoles             | f
place   | hospital hospitals | hôpital hôpitaux        | m
place   | church churches   | église églises           | f
spot    | station stations  | gare gares               | f
spot    | tree trees        | arbre arbres             | m
spot    | bridge bridges    | pont ponts               | m
spot    | river rivers      | rivière rivières         | f
"""

# English | French masculine, feminine, masculine plural, feminine plural | before a vowel | place | rank | kinds
_ADJECTIVES = """
beautiful | beau belle beaux belles             | bel     | before | 0 | person animal thing place spot
pretty    | joli jolie jolis jolies             |         | before | 0 | animal thing opening place spot
good      | bon bonne bons bonnes               |         | before | 0 | food
big       | grand grande grands grandes         |         | before | 0 | animal thing food opening place spot
small     | petit petite petits petites         |         | before | 0 | person animal thing food opening place spot
new       | nouveau nouvelle nouveaux nouvelles | nouvel  | before | 0 | person thing opening place
old       | vieux vieille vieux vieilles        | vieil   | before | 0 | person animal thing opening place spot
young     | jeune jeune jeunes jeunes           |         | before | 0 | person animal
heavy     | lourd lourde lourds lourdes         |         | after  | 1 | thing opening
expensive | cher chère chers chères             |         | after  | 1 | thing food place
dirty     | sale sale sales sales               |         | after  | 1 | animal thing opening place
strange   | étrange étrange étranges étranges   |         | after  | 1 | person animal thing place
famous    | célèbre célèbre célèbres célèbres   |         | after  | 1 | person place
happy     | heureux heureuse heureux heureuses  |         | after  | 1 | person animal
tired     | fatigué fatiguée fatigués fatiguées |         | after  | 1 | person animal
red       | rouge rouge rouges rouges           |         | after  | 2 | thing opening
green     | vert verte verts vertes             |         | after  | 2 | thing opening
black     | noir noire noirs noires             |         | after  | 2 | animal thing opening
white     | blanc blanche blancs blanches       |         | after  | 2 | animal thing opening
french    | français française français françaises | | after | 3 | person thing place
american  | américain américaine américains américaines | | after | 3 | person thing place
italian   | italien italienne italiens italiennes | | after  | 3 | person thing place
"""

# English base, -s, past (+particle) | French present of je, il, nous, vous, ils, or stem of a regular -er verb
# | future stem | participle (a leading + takes être) | frame | subjects | objects | tenses left out
_VERBS = """
see sees saw           | vois voit voyons voyez voient | verr | vu | object | person animal \
| person animal thing place |
like likes liked       | aim-      |          |          | object | person        | person animal thing food place |
find finds found       | trouv-    |          |          | object | person animal | animal thing food |
buy buys bought        | achète achète achetons achetez achètent | achèter | acheté | object | person \
| thing food animal |
eat eats ate           | mange mange mangeons mangez mangent | manger | mangé | object | person animal | food |
lose loses lost        | perds perd perdons perdez perdent | perdr | perdu | object | person | thing |
open opens opened      | ouvre ouvre ouvrons ouvrez ouvrent | ouvrir | ouvert | object | person | opening |
close closes closed    | ferm-     |          |          | object | person        | opening |
help helps helped      | aid-      |          |          | object | person        | person |
follow follows followed | suis suit suivons suivez suivent | suivr | suivi | object | person animal | person animal |
look looks looked +for | cherch-   |          |          | object | person animal | person animal thing place |
know knows knew        | connais connaît connaissons connaissez connaissent | connaîtr | connu | object | person \
| person place | past future
have has had           | ai a avons avez ont | aur | eu | object | person | thing animal | past
give gives gave        | donn-     |          |          | transfer | person      | thing food |
speak speaks spoke     | parl-     |          |          | recipient | person     | |
sleep sleeps slept     | dors dort dormons dormez dorment | dormir | dormi | plain | person animal | |
work works worked      | travaill- |          |          | plain  | person        | |
sing sings sang        | chant-    |          |          | plain  | person        | |
play plays played      | jou-      |          |          | plain  | person animal | |
arrive arrives arrived | arriv-    |          | +arrivé  | motion | person animal | |
leave leaves left      | pars part partons partez partent | partir | +parti | motion | person | |
go goes went           | vais va allons allez vont | ir | +allé | direction | person | |
be is -                | suis est sommes êtes sont | ser | été | copula | person animal thing opening place | | past
think thinks thought   | pens-     |          |          | clause | person        | | past future
know knows knew        | sais sait savons savez savent | saur | su | clause | person | | past future
say says said          | dis dit disons dites disent | dir | dit | clause | person | | future
hope hopes hoped       | espère espère espérons espérez espèrent | espérer | espéré | clause | person | | past future
"""

# English subject, object | French subject, direct object, indirect object | person | gender
_PRONOUNS = """
i me      | je me me       | 1s | m
you you   | vous vous vous | 2p | m
he him    | il le lui      | 3s | m
she her   | elle la lui    | 3s | f
we us     | nous nous nous | 1p | m
they them | ils les leur   | 3p | m
"""

# French masculine, feminine, plural
POSSESSIVES = {
    "my": ("mon", "ma", "mes"),
    "your": ("votre", "votre", "vos"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
    "our": ("notre", "notre", "nos"),
    "their": ("leur", "leur", "leurs"),
}
NUMBERS = {
    "two": "deux", "three": "trois", "four": "quatre", "five": "cinq", "six": "six", "seven": "sept", "eight": "huit",
    "nine": "neuf", "ten": "dix", "twelve": "douze", "twenty": "vingt", "thirty": "trente", "forty": "quarante",
    "fifty": "cinquante", "sixty": "soixante", "seventy": "soixante-dix", "eighty": "quatre-vingts",
    "ninety": "quatre-vingt-dix",
}  # fmt: skip
# The first English word carries the sure link, as does the word of the French that is marked with a star.
PREPOSITIONS = {
    "in": "dans*",
    "near": "près* de",
    "behind": "derrière*",
    "in front of": "devant*",
    "next to": "à côté* de",
    "with": "avec*",
    "to": "à*",
}
ADVERBS = {"often": "souvent", "always": "toujours", "never": "jamais"}
TIMES = {"present": ("now", "maintenant"), "past": ("yesterday", "hier"), "future": ("tomorrow", "demain")}
CONJUNCTIONS = {"because": "parce que", "when": "quand", "if": "si", "and": "et", "but": "mais", "that": "que"}
QUESTION_WORDS = {"why": "pourquoi", "where": "où"}
# Singular people who own things: "the king's car".
OWNERS = ("man", "woman", "boy", "girl", "friend", "neighbour", "doctor", "king", "queen", "brother", "sister", "aunt")
# People who can be someone's: "my woman" and "the king's girl" would mean something else.
RELATED = ("child", "friend", "neighbour", "teacher", "doctor", "nurse", "brother", "sister", "aunt")
# Verbs of a state: no place, no time, and "aimer" has no "pas de".
STATES = ("like", "know", "have")
# Where one goes "to" in English and "à" in French.
DESTINATIONS = ("park", "village", "castle", "hotel", "school", "hospital", "church", "station", "bridge", "river")

_VOWELS = frozenset("aeiouyàâéèêëîïôöûùœ")
_MUTE_H = ("homme", "hôtel", "hôpita", "heureu")  # h aspiré (héros, hache, huit) is not listed


def starts_with_vowel(word: str) -> bool:
    """Say whether the word makes the one before it elide."""
    return word[0] in _VOWELS or word.startswith(_MUTE_H)


def _rows(table: str) -> list[list[str]]:
    """Split a table into rows of stripped cells."""
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().split("\n")]


def _pair(cell: str) -> tuple[str, str]:
    first, second = cell.split()
    return first, second


def _nouns() -> dict[str, Noun]:
    nouns = [Noun(kind, _pair(en), _pair(fr), gender == "f") for kind, en, fr, gender in _rows(_NOUNS)]
    return {noun.en[0]: noun for noun in nouns}


def _adjectives() -> dict[str, Adjective]:
    adjectives = {}
    for en, fr, before_vowel, place, rank, kinds in _rows(_ADJECTIVES):
        masculine, feminine, plural, feminine_plural = fr.split()
        forms = (masculine, feminine, plural, feminine_plural)
        preposed = place == "before"
        adjectives[en] = Adjective(en, forms, before_vowel or None, preposed, int(rank), frozenset(kinds.split()))
    return adjectives


def _verb(row: list[str]) -> Verb:
    english, present, stem, participle, frame, subjects, objects, missing = row
    english, _, particle = english.partition(" +")
    base, third, past = english.split()
    if present.endswith("-"):
        root = present[:-1]
        forms, stem = [root + ending for ending in _ER_ENDINGS], root + "er"
        participle = participle or root + "é"
    else:
        forms = present.split()
    return Verb(
        en=(base, third, past),
        particle=particle,
        present=dict(zip(PERSONS, forms, strict=True)),
        future={person: stem + ending for person, ending in zip(PERSONS, _FUTURE_ENDINGS, strict=True)},
        participle=participle.removeprefix("+"),
        with_etre=participle.startswith("+"),
        frame=frame,
        subjects=tuple(subjects.split()),
        objects=tuple(objects.split()),
        tenses=tuple(tense for tense in ("present", "past", "future") if tense not in missing.split()),
    )


@dataclass(frozen=True)
class Pronoun:
    """A personal pronoun with its French forms as subject, direct and indirect object."""

    subject: str
    object: str
    fr: tuple[str, str, str]
    person: str
    feminine: bool

    @property
    def has_gender(self) -> bool:
        """Say whether English decides the gender of what the pronoun stands for, as far as a subject goes."""
        return self.person in ("3s", "3p")


def _pronouns() -> dict[str, Pronoun]:
    pronouns = {}
    for en, fr, person, gender in _rows(_PRONOUNS):
        subject, direct, indirect = fr.split()
        pronouns[en.split()[0]] = Pronoun(*_pair(en), (subject, direct, indirect), person, gender == "f")
    return pronouns


NOUNS = _nouns()
ADJECTIVES = _adjectives()
PRONOUNS = _pronouns()
VERBS = [_verb(row) for row in _rows(_VERBS)]
AVOIR = next(verb for verb in VERBS if verb.en[0] == "have")
ETRE = next(verb for verb in VERBS if verb.en[0] == "be")


def _word_classes() -> dict[str, str]:
    """Give each English word its class; a word of two uses ("that", "her") is a class of its own."""
    classes = {form: "noun" for noun in NOUNS.values() for form in noun.en}
    classes |= {f"{owner}'s": "owner" for owner in OWNERS}
    classes |= {form: "verb" for verb in VERBS for form in verb.en}
    classes |= {"am": "be", "are": "be", "is": "be", "be": "be"}
    classes |= dict.fromkeys(ADJECTIVES, "adjective") | dict.fromkeys(NUMBERS, "number")
    classes |= dict.fromkeys(ADVERBS, "adverb")
    for pronoun in PRONOUNS.values():
        classes |= {pronoun.subject: "subject", pronoun.object: "object"}
    classes |= dict.fromkeys(["the", "a", "an", "this", "these", "every", "many", *POSSESSIVES], "determiner")
    classes |= {word: "preposition" for words in PREPOSITIONS for word in words.split()} | {"for": "preposition"}
    classes |= {english: "time" for english, _ in TIMES.values()} | dict.fromkeys(QUESTION_WORDS, "question")
    classes |= dict.fromkeys(CONJUNCTIONS, "conjunction") | dict.fromkeys(["do", "does", "did", "will"], "auxiliary")
    return classes | {word: word for word in ("not", "who", "that", "her", "you", "?")}


WORD_CLASSES = _word_classes()
VERB_OF_FORM = {form: verb.en[0] for verb in VERBS for form in verb.en if verb is not ETRE}
