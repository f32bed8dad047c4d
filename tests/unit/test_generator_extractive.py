"""The embedded writer, on passages like those of the sample handbook."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.generator.extractive import MAX_VECTORS, choose, compose, needing_vectors
from services.generator.handler import WORDS_ALONE, generate
from services.generator.kinds import kind_bonus
from services.generator.markers import markers_in
from services.generator.settings import AnsweringPolicy
from services.generator.units import candidates
from shared.contracts import Answered, Evidence
from shared.errors import EmbedderUnavailable, Misconfigured
from tests.unit.test_generator import command, evidence

POLICY = AnsweringPolicy(_env_file=None)

RENTAL = """## Prices and deposits

| Article | SKU | 1 day | 7 days | Deposit |
|---|---|---|---|---|
| Tent Lärche 2 | NK-T2-310 | €18 | €84 | €120 |
| Tent Arve 3 | NK-T3-420 | €26 | €119 | €160 |

The longest rental is 28 days. A damp tent costs nothing extra when it is reported."""
TENTS = """| | Kiefer 1 | Lärche 2 |
|---|---|---|
| SKU | NK-T1-180 | NK-T2-310 |
| Weight | 1.24 kg | 1.98 kg |
| Price | €259 | €329 |

All prices include value-added tax and 12 pegs."""
EXPRESS = """## Express
An express order leaves the same day if it is placed before 13:00 on a working day. It is not packed on Sundays.

- Tents above 60 cm cannot be sent by express."""
RELAIS = """| Mode | Prix | Délai |
|---|---|---|
| Point relais | 4,50 € | 3 à 5 jours ouvrés |
| Domicile, express | 16,90 € | 1 à 2 jours ouvrés |

Vous disposez de 8 jours pour retirer le colis. Elle part de Fribourg."""
KARTA = "Карта действует 36 месяцев со дня покупки. Остаток не сгорает. Без чека восстановить карту нельзя."
BOOTS = "Brush off the mud. The temperature must not exceed 35 °C. Wax the leather twice a year."


class FakeEmbedder:
    """The text with the wanted word lies with the question, everything else across; or it fails."""

    fingerprint, dimension = "fake", 2

    def __init__(self, wanted: str = "", error: Exception | None = None) -> None:
        self.wanted, self.error = wanted, error
        self.passages: list[str] = []

    async def embed_questions(self, texts: Sequence[str]) -> Any:
        if self.error:
            raise self.error
        return [[1.0, 0.0] for _ in texts]

    async def embed_passages(self, texts: Sequence[str]) -> Any:
        self.passages += texts
        return [[1.0, 0.0] if self.wanted in text else [0.0, 1.0] for text in texts]

    async def aclose(self) -> None: ...


async def ask(question: str, *found: Evidence, language: str = "en", embedder: FakeEmbedder | None = None) -> Answered:
    msg = command(*found, question=question, language=language)
    outcome = await generate(msg, chat=None, embedder=embedder, policy=POLICY, now=time.time)
    assert isinstance(outcome, Answered)
    return outcome


ALL = (
    evidence(RENTAL, 0.8, "rental", title="Equipment rental"),
    evidence(TENTS, 0.8, "tents", title="Tent guide"),
    evidence(EXPRESS, 0.8, "express", title="Shipping"),
    evidence(RELAIS, 0.8, "relais", title="Livraison", language="fr"),
    evidence(KARTA, 0.8, "karta", title="Подарочные карты", language="ru"),
)


@pytest.mark.parametrize(
    ("question", "language", "lead_in", "contains"),
    [
        ("By what time must I place an express order?", "en", "According to the documents:", ["before 13:00"]),
        ("What does it cost to rent NK-T2-310 for 7 days?", "en", "According to the documents:", ["€84", "| SKU |"]),
        ("What does the tent NK-T1-180 cost new?", "en", "According to the documents:", ["€259", "Kiefer 1"]),
        ("How heavy is the Lärche 2, weight in kg?", "en", "According to the documents:", ["1.98 kg"]),
        ("Combien coûte la livraison en point relais ?", "fr", "D'après les documents :", ["4,50 €", "| Mode |"]),
        ("Combien de jours pour retirer le colis ?", "fr", "D'après les documents :", ["8 jours"]),
        ("Сколько месяцев действует карта?", "ru", "Согласно документам:", ["36 месяцев"]),
        ("Wie lange gilt NK-T3-420?", "de", "According to the documents:", ["NK-T3-420"]),
    ],
)
async def test_answers(question: str, language: str, lead_in: str, contains: list[str]) -> None:
    outcome = await ask(question, *ALL, language=language)
    assert outcome.status == "answered"
    assert outcome.answer.startswith(lead_in)
    assert all(part in outcome.answer for part in contains), outcome.answer
    assert (outcome.writer, outcome.usage, outcome.language) == ("extractive", (), language)
    assert 1 <= len(outcome.citations) <= 3


async def test_a_table_row_comes_with_its_head_and_its_marker_below() -> None:
    outcome = await ask("What does it cost to rent the tent NK-T3-420?", ALL[0])
    head = "| Article | SKU | 1 day | 7 days | Deposit |\n|---|---|---|---|---|\n"
    assert head + "| Tent Arve 3 | NK-T3-420 | €26 | €119 | €160 |" in outcome.answer
    assert outcome.citations[0].quote == "| Tent Arve 3 | NK-T3-420 | €26 | €119 | €160 |"
    assert "\n\n[1]" in outcome.answer


async def test_each_part_of_a_question_has_its_sentence() -> None:
    question = "What does it cost to rent NK-T2-310 for 7 days, and what does the same tent cost new?"
    outcome = await ask(question, *ALL[:2])
    assert {each.passage_id for each in outcome.citations} == {"rental", "tents"}
    assert "€84" in outcome.answer
    assert "€329" in outcome.answer


async def test_a_row_that_answers_two_parts_is_quoted_once() -> None:
    outcome = await ask("What does it cost to rent NK-T3-420 for 7 days, and what is the deposit for it?", ALL[0])
    assert [each.quote for each in outcome.citations] == ["| Tent Arve 3 | NK-T3-420 | €26 | €119 | €160 |"]


@pytest.mark.parametrize(
    ("question", "row"),
    [
        ("What does NK-T2-310 weigh?", "| Weight | 1.24 kg | 1.98 kg |"),
        ("How much is the Lärche 2?", "| Price | €259 | €329 |"),
        ("What is the SKU of the Kiefer 1?", "| SKU | NK-T1-180 | NK-T2-310 |"),
    ],
)
async def test_where_columns_are_the_items_the_row_of_what_is_asked_for_answers(question: str, row: str) -> None:
    outcome = await ask(question, ALL[1])
    assert outcome.citations[0].quote == row
    assert "| | Kiefer 1 | Lärche 2 |" in outcome.answer


@pytest.mark.parametrize(
    ("question", "language", "found", "other"),
    [
        ("What does it cost to rent the tent NK-T2-310?", "en", ALL[0], "NK-T3-420"),
        ("Combien coûte la livraison en point relais ?", "fr", ALL[3], "Domicile"),
    ],
)
async def test_rows_of_other_items_stay_out(question: str, language: str, found: Evidence, other: str) -> None:
    outcome = await ask(question, found, language=language)
    assert other not in outcome.answer


async def test_the_passage_judged_best_wins_over_one_that_shares_more_words() -> None:
    found = [
        evidence("We keep your order for 7 days after it is ready.", 0.9, "faq", title="How does collecting work?"),
        evidence("The deposit is released within 2 days of collecting.", 0.45, "rental", title="Rental"),
    ]
    outcome = await ask("How long do you keep an order for collecting?", *found)
    assert outcome.citations[0].passage_id == "faq"


def test_a_property_is_compared_for_the_item_that_the_question_names() -> None:
    price = next(unit for unit in candidates([ALL[1]]) if "Price" in unit.text)
    assert price.meant("Combien coûte la tente Lärche 2 ?") == "Lärche 2, Price: €329"
    assert price.meant("Combien coûte la tente ?") == f"{price.table}\n{price.text}"


@pytest.mark.parametrize(
    ("question", "text", "worth"),
    [
        ("Combien pèse la tente ?", "1.98 kg", True),
        ("Combien pèse la tente ?", "2 doors", False),
        ("При какой температуре сушить?", "not above 35 °C", True),
        ("Сколько человек помещается?", "3", True),
        ("How long is the warranty?", "5 years", True),
        ("Is it open on Monday?", "5 years", False),
    ],
)
def test_an_answer_looks_like_what_is_asked_for(question: str, text: str, worth: bool) -> None:
    assert (kind_bonus(question, text, "") > 0) is worth


@pytest.mark.parametrize(("score", "status"), [(0.5, "abstained"), (0.75, "answered"), (None, "answered")])
async def test_a_weak_passage_without_the_words_of_the_question_is_no_answer(score: float | None, status: str) -> None:
    shops = "Nordkamm has three shops: Freiburg, Lyon and Annecy. Nordkamm is closed on Sundays. Nordkamm rents tents."
    found = evidence(shops, score, title="Shops")
    assert (await ask("Who is the chief executive of Nordkamm?", found)).status == status


@pytest.mark.parametrize(("score", "status"), [(0.6, "abstained"), (0.7, "answered")])
async def test_across_languages_the_grade_alone_says_whether_there_is_an_answer(score: float, status: str) -> None:
    outcome = await ask("À quelle température sécher ?", evidence(BOOTS, score), language="fr")
    assert outcome.status == status


async def test_a_weak_passage_with_the_words_of_the_question_is_an_answer() -> None:
    found = evidence("The chief executive of Nordkamm is Anna Berg.", 0.5, title="About us")
    assert (await ask("Who is the chief executive of Nordkamm?", found)).status == "answered"


async def test_a_sentence_that_goes_on_follows() -> None:
    outcome = await ask("By what time must I place an express order so that it leaves the same day?", ALL[2])
    assert "It is not packed on Sundays. [2]" in outcome.answer


async def test_across_languages_meaning_decides() -> None:
    question = "À quelle température faut-il sécher les chaussures ?"
    embedder = FakeEmbedder("35 °C")
    outcome = await ask(question, evidence(BOOTS), language="fr", embedder=embedder)
    assert "The temperature must not exceed 35 °C. [1]" in outcome.answer
    assert outcome.answer.startswith("D'après les documents :")
    assert embedder.passages


async def test_words_in_common_need_no_vectors() -> None:
    embedder = FakeEmbedder()
    await ask("When does an express order leave?", ALL[2], embedder=embedder)
    assert embedder.passages == []


async def test_another_sentence_of_the_best_ones_passage_comes_before_one_from_elsewhere() -> None:
    found = [
        evidence(
            "The gift card is valid for 36 months. No month is counted twice on a card.", passage_id="a", title="Gift"
        ),
        evidence("The warranty of a boot is valid for 24 months.", passage_id="b", title="Boots"),
    ]
    outcome = await ask("How many months is the gift card valid?", *found)
    quotes = [each.quote for each in outcome.citations]
    assert quotes == ["The gift card is valid for 36 months.", "No month is counted twice on a card."]


async def test_a_heading_is_no_answer() -> None:
    found = [
        evidence("Cruise rope", passage_id="heading", title="Ropes"),
        evidence("Only the rope called Cruise is made of hemp.", passage_id="said", title="Ropes"),
    ]
    outcome = await ask("What is a cruise rope?", *found)
    assert outcome.citations[0].passage_id == "said"


async def test_whether_is_answered_by_yes_or_no() -> None:
    found = [
        evidence("Les tentes louées peuvent être rendues à Lyon.", passage_id="said", language="fr"),
        evidence("Oui, le matériel peut y être rendu.", passage_id="yes", language="fr", title="Location à Lyon"),
    ]
    outcome = await ask("Peut-on rendre une tente à Lyon ?", *found, language="fr")
    assert outcome.citations[0].passage_id == "yes"


async def test_a_row_of_another_code_is_no_answer_about_the_one_asked_for() -> None:
    found = [
        evidence("| SKU | Price new |\n|---|---|\n| NK-T2-310 | €18 |", 0.9, "rental", title="Tent prices"),
        evidence("NK-T1-180 is sold at €259.", 0.5, "tents", title="Guide"),
    ]
    outcome = await ask("What is the price of the new tent NK-T1-180?", *found)
    assert outcome.citations[0].passage_id == "tents"


@pytest.mark.parametrize("error", [EmbedderUnavailable("refused"), Misconfigured("401")])
async def test_without_the_embedder_words_decide(error: Exception) -> None:
    outcome = await ask("Température ?", evidence(BOOTS), language="fr", embedder=FakeEmbedder(error=error))
    assert (outcome.status, outcome.degraded) == ("answered", (WORDS_ALONE,))


def test_few_sentences_are_compared() -> None:
    found = [evidence(" ".join(f"Sentence number {n} says nothing." for n in range(60)))]
    assert len(needing_vectors("Où ?", "fr", candidates(found), found)) == MAX_VECTORS


async def test_nothing_to_quote_abstains() -> None:
    assert (await ask("How long?", evidence("***\n# Heading"))).status == "abstained"


async def test_confidence_follows_the_cited_grades() -> None:
    ungraded = await ask("When does an express order leave?", evidence(EXPRESS, None))
    assert ungraded.confidence == pytest.approx(0.3)


TEXTS = st.lists(
    st.sampled_from(
        [
            "The tent costs 5 €. ",
            "It is dry [1]. ",
            "[[9]1]",
            "\n",
            "| a | b |\n",
            "|---|---|\n",
            "| tent | 4 € |\n",
            "```\n",
            "`",
            "- Палатка сохнет. ",
            "# Heading\n",
            "~~~",
            "[",
            "word " * 160,
            "Déjà vu ! ",
            "\x1c",
            "\u2028",
            "1. ",
        ]
    ),
    min_size=1,
    max_size=12,
).map("".join)


@settings(deadline=None)  # the first example loads language models
@given(texts=st.lists(st.one_of(TEXTS, st.text(min_size=1, max_size=80)), min_size=1, max_size=3), two=st.booleans())
def test_quotes_stand_in_their_passages_and_markers_match(texts: list[str], two: bool) -> None:
    found = [evidence(text, passage_id=str(n), language="und") for n, text in enumerate(texts)]
    question = "What does the tent cost" + (", and who dries a tent?" if two else "?")
    units = candidates(found)
    written = compose(choose(question, "en", units, found, {0: 0.9} if units else {}), found, "en")
    if written is None:
        assert not units
        return
    assert markers_in(written.answer) == list(range(1, len(written.citations) + 1))
    assert len(written.citations) <= 3
    for each, source in zip(written.citations, written.evidence, strict=True):
        assert each.passage_id == source.passage.passage_id
        assert each.quote in source.passage.text
        assert 0 < len(each.quote) <= 300
