"""Any text becomes pieces and comes back, and every piece knows its word."""

import itertools
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from translate.config import TokenizerConfig, choices
from translate.errors import DataError, RunError
from translate.text.corpus import BREAKS, tidy
from translate.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, train_tokenizer

LATIN = ["the", "a", "small", "large", "house", "man", "woman", "sees", "hears", "of", "not"]
OTHERS = ["l'homme", "où", "été", "garçon", "Straße", "Äpfel", "我们", "学校", "Привет"]
WORDS = LATIN + OTHERS
GRAMMAR = random.Random(1)
LINES = [" ".join(GRAMMAR.choices(WORDS, k=GRAMMAR.randint(1, 9))) for _ in range(300)]
VARIANTS = [
    TokenizerConfig(vocabulary=400),
    TokenizerConfig(vocabulary=400, kind="bpe"),
    TokenizerConfig(vocabulary=400, normalization="nmt_nfkc_cf"),
    TokenizerConfig(vocabulary=200, byte_fallback=False),
    TokenizerConfig(vocabulary=16, kind="word"),
    TokenizerConfig(vocabulary=100, kind="word", normalization="nmt_nfkc_cf", byte_fallback=False),
    TokenizerConfig(vocabulary=300, kind="char"),
    TokenizerConfig(vocabulary=30, kind="char", byte_fallback=False),
]
TEXTS = st.text() | st.lists(st.sampled_from([*WORDS, " ", "  ", "\t", "\u2028", "▁", "</s>", "ﬁ", "\u00a0"])).map(
    "".join
)


def learn(lines: Sequence[str], config: TokenizerConfig) -> tuple[Tokenizer, list[str]]:
    said: list[str] = []
    return Tokenizer(train_tokenizer(lines, config, seed=1, say=said.append)), said


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return learn(LINES, VARIANTS[0])[0]


@pytest.fixture(
    scope="module", params=VARIANTS, ids=lambda config: f"{config.kind}-{config.normalization}-{config.byte_fallback}"
)
def variant(request: pytest.FixtureRequest) -> Tokenizer:
    return learn(LINES, request.param)[0]


@settings(deadline=None)
@given(TEXTS)
@example("a ▅ \ud800 \x00")
def test_any_text_comes_back_with_single_spaces(tokenizer: Tokenizer, text: str) -> None:
    wanted = " ".join(part for part in tidy(text).replace("▁", " ").split(" ") if part)
    assert tokenizer.decode(tokenizer.encode(text)) == wanted


@settings(deadline=None)
@given(TEXTS)
def test_text_in_any_variant_stays_one_line(variant: Tokenizer, text: str) -> None:
    ids = variant.encode(text)
    assert {PAD, BOS, EOS}.isdisjoint(ids)
    assert all(index < variant.size for index in ids)
    decoded = variant.decode(ids)
    assert not set(decoded) & set(BREAKS)
    assert "  " not in decoded
    assert decoded == decoded.strip(" ")


@settings(deadline=None)
@given(st.lists(st.sampled_from([*WORDS, "Ärger", "zebra", "😀"]), min_size=1, max_size=12))
def test_decoding_equals_sentencepieces_own(variant: Tokenizer, words: list[str]) -> None:
    ids = variant.encode(" ".join(words))
    if UNK not in ids:
        processor = sentencepiece.SentencePieceProcessor(model_proto=variant.model)
        assert variant.decode(ids) == processor.decode(ids)


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=5))
def test_many_texts_are_encoded_like_each_alone(variant: Tokenizer, texts: list[str]) -> None:
    alone = [variant.encode(text) for text in texts]
    assert variant.encode_all(texts) == alone
    ids, lengths = variant.encode_flat(texts)
    assert (ids.tolist(), lengths.tolist()) == (list(itertools.chain(*alone)), [len(text) for text in alone])
    assert (ids.dtype, lengths.dtype) == (np.int32, np.int64)
    assert [variant.encode_words(text)[0] for text in texts] == alone


@settings(deadline=None, max_examples=200)
@given(TEXTS)
@example("ﬁn ½ ﷺ x\u00a0y a\tb")
@example("▁ a ▁▁ b")
@example("a\u00a0 the \u00a0house")
def test_pieces_know_their_words(variant: Tokenizer, text: str) -> None:
    ids, words = variant.encode_words(text)
    assert len(ids) == len(words)
    inside = [word for word in words if word >= 0]
    assert inside == sorted(inside)
    originals = [word for word in text.split(" ") if word]
    assert not inside or inside[-1] < len(originals)
    visible = {index for index, word in enumerate(originals) if re.search(r"[^\W_]", word)}
    assert visible <= set(inside)


def test_word_indices_by_example(tokenizer: Tokenizer) -> None:
    text = "  the\thouse  😀sees\u00a0x "
    ids, words = tokenizer.encode_words(text)
    spelt: dict[int, list[int]] = {}
    for index, word in zip(ids, words, strict=True):
        spelt.setdefault(word, []).append(index)
    assert tokenizer.decode(spelt[0]) == "the house"  # one word of the text as given, though a tab is in it
    assert tokenizer.decode(spelt[1]) == "😀sees\u00a0x"
    assert set(tokenizer.decode(spelt.get(-1, []))) <= {" "}


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_decoded_pieces_know_their_words(variant: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, variant.size - 1), max_size=30))
    text, words = variant.decode_words(ids)
    assert text == variant.decode(ids)
    assert len(words) == len(ids)
    inside = [word for word in words if word >= 0]
    assert inside == sorted(inside)
    assert set(inside) == set(range(len(text.split(" ")) if text else 0))
    assert all(word == -1 for index, word in zip(ids, words, strict=True) if index in (PAD, BOS, EOS))


@settings(deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8))
def test_both_word_maps_agree(variant: Tokenizer, words: list[str]) -> None:
    text = " ".join(words)
    ids, encoded = variant.encode_words(text)
    if UNK not in ids:
        assert variant.decode_words([BOS, *ids, EOS, PAD])[1] == [-1, *encoded, -1, -1]


def test_unknown_and_special_pieces(tokenizer: Tokenizer) -> None:
    house = tokenizer.encode("house")
    assert tokenizer.decode([PAD, BOS, *house, UNK, EOS, PAD]) == "house⁇"
    assert tokenizer.decode([]) == ""
    assert tokenizer.encode("") == tokenizer.encode(" \t\u2028") == []
    assert tokenizer.encode_words("") == ([], [])
    assert tokenizer.pieces([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]
    broken = tokenizer.encode("😀")[:-1]
    assert "\ufffd" in tokenizer.decode(broken)


@pytest.mark.parametrize("config", VARIANTS[:2], ids=["unigram", "bpe"])
def test_symbols_written_in_the_text_are_text(config: TokenizerConfig) -> None:
    text = "a </s> b <s> <unk> <pad> <0x41> c"
    for lines in (LINES, [text] * 100):
        tokenizer, _ = learn(lines, config)
        ids = tokenizer.encode(text)
        assert {PAD, UNK, BOS, EOS}.isdisjoint(ids)
        assert tokenizer.decode(ids) == text


SMALL = {
    "identical": ["hello world"] * 100,
    "one character": ["a"] * 100,
    "no spaces": ["我们今天去学校学习中文", "你好世界"] * 50,
    "emoji": ["😀 🎉👩‍👩‍👧", "👍🏽"] * 50,
    "reserved": ["▅▁ x"] * 100,
    "combining": ["é́́ ก็้"] * 100,
    "one line": ["x"],
    "long line": ["abc def " * 20_000, "z" * 50_000],
    "dirty": ["a\x00b\u2028c\td", "\ufeff\ud800x", "", " "] * 25,
}


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("name", SMALL)
def test_small_and_odd_corpora(name: str, kind: str) -> None:
    config = TokenizerConfig(vocabulary=300, kind=kind)
    tokenizer, said = learn(SMALL[name], config)
    assert 261 <= tokenizer.size <= 300
    assert said or tokenizer.size == 300
    line = SMALL[name][0]
    assert tokenizer.decode(tokenizer.encode(line)).split() == tidy(line).replace("▁", " ").split()


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_a_large_alphabet_takes_half_of_the_room(kind: str, byte_fallback: bool) -> None:
    lines = [" ".join(chr(0x4E00 + (7 * row + column * column) % 3000) for column in range(20)) for row in range(500)]
    config = TokenizerConfig(vocabulary=600, kind=kind, byte_fallback=byte_fallback)
    tokenizer, said = learn(lines, config)
    room = 600 - 4 - 256 * byte_fallback
    single = [piece for piece in tokenizer.pieces(range(tokenizer.size)) if len(piece) == 1]
    assert room * 0.45 <= len(single) <= room * 0.55
    assert "different characters" in said[0]
    assert ("bytes" if byte_fallback else "unknown") in said[0]
    assert (UNK in tokenizer.encode(lines[0] + lines[1])) is not byte_fallback


# -- whole words and characters ---------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.sampled_from([*WORDS, "e\u0301\u0323", "a\u00a0b", "  "])), st.sampled_from(["word", "char"]))
def test_known_words_and_characters_come_back(
    whole: dict[str, Tokenizer], words: list[str], kind: Literal["word", "char"]
) -> None:
    """Also with several spaces, without spaces between ideographs, and with marks that stay apart from their letter."""
    text = " ".join(words)
    ids, places = whole[kind].encode_words(text)
    given = [word for word in text.split(" ") if word]
    assert UNK not in ids
    assert whole[kind].decode(ids) == " ".join(given)
    if kind == "word":
        assert whole[kind].pieces(ids) == [f"▁{word}" for word in given]
        assert places == list(range(len(given)))
    else:
        assert "".join(whole[kind].pieces(ids)) == "".join(f"▁{word}" for word in given)
        assert places == [number for index, word in enumerate(given) for number in (-1, *[index] * len(word))]


@pytest.fixture(scope="module")
def whole() -> dict[str, Tokenizer]:
    lines = [*LINES, "e\u0301\u0323 a\u00a0b"]
    return {kind: learn(lines, TokenizerConfig(kind=kind))[0] for kind in ("word", "char")}


def test_every_unknown_word_is_one_piece_and_one_word(whole: dict[str, Tokenizer]) -> None:
    """sentencepiece's own word model makes one piece of several in a row, and glues it to its neighbours."""
    text = "the zebra  and 😀 house zebra"
    ids, places = whole["word"].encode_words(text)
    assert whole["word"].pieces(ids) == ["▁the", "<unk>", "<unk>", "<unk>", "▁house", "<unk>"]
    assert ids == whole["word"].encode(text)
    assert places == list(range(6))
    assert whole["word"].decode_words(ids) == ("the ⁇ ⁇ ⁇ house ⁇", list(range(6)))


def test_a_word_that_normalizes_to_several_keeps_its_number() -> None:
    config = TokenizerConfig(kind="word", normalization="nmt_nfkc_cf")
    tokenizer, _ = learn(["صلى الله عليه وسلم The end"], config)
    ids, places = tokenizer.encode_words("THE ﷺ end")
    assert tokenizer.decode(ids) == "the صلى الله عليه وسلم end"
    assert places == [0, 1, 1, 1, 1, 2]


def test_the_vocabulary_of_words_is_the_most_frequent() -> None:
    counts = {f"w{rank}": 50 - rank for rank in range(40)}
    lines = [word for word, count in counts.items() for _ in range(count)]
    GRAMMAR.shuffle(lines)
    tokenizer, said = learn(lines, TokenizerConfig(kind="word", vocabulary=20))
    assert tokenizer.pieces(range(4, tokenizer.size)) == [f"▁w{rank}" for rank in range(16)]
    covered = sum(range(35, 51)) / sum(counts.values())
    assert said == [
        f"The text has 40 different words; 16 of them ({covered:.2%} of the text) become pieces, the others are "
        "unknown. A larger tokenizer.vocabulary has room for more."
    ]


def test_words_that_cannot_be_pieces_leave_their_room_to_others() -> None:
    refused = ["<s>", "</s>x", "<unk>", "<pad>", "a▅", "z" * 5000]
    tokenizer, said = learn(
        [" ".join(refused) * 9, "😀" * 1000 + " one two"], TokenizerConfig(kind="word", vocabulary=16)
    )
    assert tokenizer.size == 7
    assert set(tokenizer.encode("one two " + "😀" * 1000)) == {4, 5, 6}
    assert all(tokenizer.encode(word) == [UNK] for word in refused)
    assert "3 of them" in said[0]
    assert "larger" not in said[0]
    assert "has 7 pieces, not 16" in said[1]


@pytest.mark.parametrize("byte_fallback", [True, False])
def test_characters_take_all_of_the_room(byte_fallback: bool) -> None:
    """And the space has its piece even where it is rarer than all of them."""
    lines = ["".join(chr(0x4E00 + (rank + shift) % (rank + 1)) for rank in range(400)) for shift in range(30)]
    config = TokenizerConfig(kind="char", vocabulary=400, byte_fallback=byte_fallback)
    tokenizer, said = learn(lines, config)
    assert tokenizer.size == 400
    assert "▁" in tokenizer.pieces(range(tokenizer.size))
    assert len(said) == 1
    assert f"the {400 - 4 - 1 - 256 * byte_fallback} most frequent" in said[0]
    assert ("bytes" if byte_fallback else "unknown") in said[0]
    assert (UNK in tokenizer.encode("".join(lines))) is not byte_fallback
    assert tokenizer.decode(tokenizer.encode("一 一")) == "一 一"


def test_a_long_line_does_not_cut_words() -> None:
    tokenizer, _ = learn(["house " * 1000], TokenizerConfig(kind="word"))
    assert tokenizer.pieces(range(4, tokenizer.size)) == ["▁house"]


def test_bytes_are_for_all_kinds_but_words() -> None:
    assert TokenizerConfig(kind="word", vocabulary=16).byte_fallback, "the default does not stand in the way"
    for kind in set(choices(TokenizerConfig, "kind")) - {"word"}:
        with pytest.raises(ValueError, match="at least 300"):
            TokenizerConfig.model_validate({"kind": kind, "vocabulary": 299})


# -- seeds of the unigram trainer -------------------------------------------------------------------------------------


def test_a_word_that_a_space_always_follows_is_a_piece() -> None:
    """sentencepiece 0.2.3 by itself cuts every word but the full stop."""
    grammar = random.Random(3)
    lines = [" ".join([*grammar.choices(LATIN, k=grammar.randint(1, 9)), "."]) for _ in range(200)]
    tokenizer, _ = learn(lines, VARIANTS[0])
    assert [len(tokenizer.encode(word)) for word in LATIN] == [1] * len(LATIN)


@pytest.mark.parametrize("normalization", choices(TokenizerConfig, "normalization"))
def test_seeds_are_spelt_as_sentencepiece_normalizes(normalization: str) -> None:
    """Full-width letters, ligatures and capitals: words of them are pieces as well, as the normal form they take."""
    words = ["Ｈｏｕｓｅ", "eﬃcient", "Straße"]
    config = TokenizerConfig.model_validate({"vocabulary": 400, "normalization": normalization})
    tokenizer, _ = learn([f"{' '.join(words[:number])} ." for number in (1, 2, 3) for _ in range(9)], config)
    assert [len(tokenizer.encode(word)) for word in words] == [1, 1, 1]


# -- what cannot be learnt from, and model files ----------------------------------------------------------------------


@pytest.mark.parametrize("lines", [[], ["", " "], ["\u2028\t\x00"], ["▅"]])
@pytest.mark.parametrize("kind", choices(TokenizerConfig, "kind"))
def test_an_empty_corpus_is_refused(lines: list[str], kind: str) -> None:
    with pytest.raises(DataError, match="nothing to learn from"):
        learn(lines, TokenizerConfig.model_validate({"kind": kind}))


def test_a_corpus_that_normalizes_to_nothing_is_refused() -> None:
    with pytest.raises(DataError, match=r"nothing to learn|cannot learn"):
        learn(["\u3000\u00a0"] * 100, VARIANTS[2])


def test_training_twice_gives_the_same_bytes_and_no_noise(capfd: pytest.CaptureFixture[str]) -> None:
    first, second = (learn(itertools.chain(LINES, []), VARIANTS[0])[0].model for _ in range(2))
    assert first == second
    assert capfd.readouterr() == ("", "")


def test_the_folder_for_temporary_files_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = []
    for name in ("short", "much-longer/été", "x" * 220):
        (tmp_path / name).mkdir(parents=True)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / name))
        models.append(learn(LINES, VARIANTS[0])[0].model)
    assert models[0] == models[1]
    assert not any(str(tmp_path).encode() in model for model in models)


def test_a_large_corpus_is_sampled_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("translate.text.tokenizer._MOST_LINES", 40)
    one, again, other = (train_tokenizer(LINES, VARIANTS[1], seed, lambda _: None) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_a_model_file_loads_and_a_damaged_one_is_named(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "tokenizer.source.model"
    path.write_bytes(tokenizer.model)
    loaded = Tokenizer.load(path)
    assert (loaded.model, loaded.size) == (tokenizer.model, tokenizer.size)
    for damage in (b"", b"not a model", tokenizer.model[:-7], tokenizer.model[50:]):
        path.write_bytes(damage)
        with pytest.raises(RunError, match=re.escape(str(path))):
            Tokenizer.load(path)
    with pytest.raises(RunError, match="No such file"):
        Tokenizer.load(tmp_path / "none.model")


def test_a_foreign_model_with_other_ids_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("\n".join(LINES))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "m"), vocab_size=50, minloglevel=2
    )
    with pytest.raises(RunError, match=r"must be the pieces 0, 1, 2, 3, not \(-1, 0, 1, 2\)"):
        Tokenizer.load(tmp_path / "m.model")


def test_mutated_model_files_never_crash_the_process(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """A thousand damaged files, in a process of their own because a crash would end it."""
    (tmp_path / "good.model").write_bytes(tokenizer.model)
    code = """
import random, sys
from translate.errors import RunError
from translate.text.tokenizer import Tokenizer
good = open(sys.argv[1], "rb").read()
generator = random.Random(7)
refused = 0
for _ in range(1000):
    bad = bytearray(good)
    begin = generator.randrange(len(bad))
    cut = generator.choice([0, 1, 40, len(bad)])
    bad[begin : begin + cut] = generator.randbytes(generator.choice([0, 1, 40]))
    try:
        tokenizer = Tokenizer(bytes(bad))
        tokenizer.decode(tokenizer.encode("the house </s> 😀"))
    except RunError:
        refused += 1
print(refused)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "good.model")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 500


@pytest.mark.parametrize(("kind", "what"), [("word", "word that can be a piece"), ("unigram", "visible character")])
def test_text_with_nothing_to_learn_from_is_told(kind: Literal["word", "unigram"], what: str) -> None:
    with pytest.raises(DataError, match=f"the training text holds no {what}"):
        learn([" ", "\t"], TokenizerConfig(vocabulary=300, kind=kind))


def test_spellings_have_a_score_each(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("house")
    ways, scores = tokenizer.spellings(ids, 5)
    assert len(ways) == len(scores) >= 2
    assert scores.tolist() == sorted(scores.tolist(), reverse=True)
    lost = [*ids, UNK]
    ways, scores = tokenizer.spellings(lost, 5)
    assert (ways, scores.tolist()) == ([lost], [0.0]), "there is no text to spell otherwise"
