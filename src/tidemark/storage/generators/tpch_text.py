"""The words of TPC-H, and its comments: random cuts from a pool of made-up English.

Comments are built as the specification says (4.2.2.14): a grammar makes sentences, the more common
words more often, and a comment is any stretch of them. The pool is the same for every seed; which
stretch a row has is not. Its most famous words meet rarely: `special … requests` is in about one
order in a hundred.
"""

from __future__ import annotations

from functools import cache
from itertools import count, product

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.storage.generators.draws import below, draw

_SENTENCES = np.arange(1 << 16)
_POOL_SEED = 0
_ADDRESS_CHARS = 1 << 20


def _words(text: str) -> pa.Array:
    return pa.array(text.split(", "))


def _pairs(*texts: str) -> pa.Array:
    return pa.array([" ".join(words) for words in product(*(text.split(", ") for text in texts))])


def _weighted(weights: dict[int, str]) -> pa.Array:
    """Words as often as they weigh, so that a uniform choice is a weighted one."""
    return pa.array([w for weight, text in weights.items() for w in text.split(", ") * weight])


REGIONS = _words("AFRICA, AMERICA, ASIA, EUROPE, MIDDLE EAST")
NATIONS = _words(
    "ALGERIA, ARGENTINA, BRAZIL, CANADA, EGYPT, ETHIOPIA, FRANCE, GERMANY, INDIA, INDONESIA, IRAN, "
    "IRAQ, JAPAN, JORDAN, KENYA, MOROCCO, MOZAMBIQUE, PERU, CHINA, ROMANIA, SAUDI ARABIA, VIETNAM, "
    "RUSSIA, UNITED KINGDOM, UNITED STATES"
)
REGION_OF_NATION = np.array(
    [0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1]
)
COLOURS = _words(
    "almond, antique, aquamarine, azure, beige, bisque, black, blanched, blue, blush, brown, "
    "burlywood, burnished, chartreuse, chiffon, chocolate, coral, cornflower, cornsilk, cream, "
    "cyan, dark, deep, dim, dodger, drab, firebrick, floral, forest, frosted, gainsboro, ghost, "
    "goldenrod, green, grey, honeydew, hot, indian, ivory, khaki, lace, lavender, lawn, lemon, "
    "light, lime, linen, magenta, maroon, medium, metallic, midnight, mint, misty, moccasin, "
    "navajo, navy, olive, orange, orchid, pale, papaya, peach, peru, pink, plum, powder, puff, "
    "purple, red, rose, rosy, royal, saddle, salmon, sandy, seashell, sienna, sky, slate, smoke, "
    "snow, spring, steel, tan, thistle, tomato, turquoise, violet, wheat, white, yellow"
)
TYPES = _pairs(
    "STANDARD, SMALL, MEDIUM, LARGE, ECONOMY, PROMO",
    "ANODIZED, BURNISHED, PLATED, POLISHED, BRUSHED",
    "TIN, NICKEL, BRASS, STEEL, COPPER",
)
CONTAINERS = _pairs("SM, LG, MED, JUMBO, WRAP", "CASE, BOX, BAG, JAR, PKG, PACK, CAN, DRUM")
SEGMENTS = _words("AUTOMOBILE, BUILDING, FURNITURE, MACHINERY, HOUSEHOLD")
PRIORITIES = _words("1-URGENT, 2-HIGH, 3-MEDIUM, 4-NOT SPECIFIED, 5-LOW")
INSTRUCTIONS = _words("DELIVER IN PERSON, COLLECT COD, NONE, TAKE BACK RETURN")
MODES = _words("REG AIR, AIR, RAIL, SHIP, TRUCK, MAIL, FOB")

_NOUNS = _weighted(
    {
        40: "packages, requests, accounts, deposits",
        20: "foxes, ideas, theodolites, pinto beans, instructions",
        10: "dependencies, excuses, platelets, asymptotes",
        5: "courts, dolphins",
        1: "multipliers, sauternes, warthogs, frets, dinos, attainments, somas, Tiresias, patterns, "
        "forges, braids, frays, warhorses, dugouts, notornis, epitaphs, pearls, tithes, waters, "
        "orbits, gifts, sheaves, depths, sentiments, decoys, realms, pains, grouches, escapades, "
        "hockey players",
    }
)
_ADJECTIVES = _weighted(
    {
        50: "regular",
        40: "final, ironic",
        30: "even",
        20: "special, pending, unusual, express, bold",
        10: "silent",
        1: "furious, sly, careful, blithe, quick, fluffy, slow, quiet, ruthless, thin, close, "
        "dogged, daring, brave, stealthy, permanent, enticing, idle, busy",
    }
)
_ADVERBS = _weighted(
    {
        50: "furiously, slyly, carefully",
        40: "blithely",
        30: "quickly",
        20: "fluffily",
        1: "sometimes, always, never, slowly, quietly, ruthlessly, thinly, closely, doggedly, "
        "daringly, bravely, stealthily, permanently, enticingly, idly, busily, regularly, finally, "
        "ironically, evenly, boldly, silently",
    }
)
_VERBS = _weighted(
    {
        20: "sleep, wake, are, cajole, haggle",
        10: "nag, use, boost",
        5: "affix, detect, integrate",
        1: "maintain, nod, was, lose, sublate, solve, thrash, promise, engage, hinder, print, "
        "x-ray, breach, eat, grow, impress, mold, poach, serve, run, dazzle, snooze, doze, unwind, "
        "kindle, play, hang, believe, doubt",
    }
)
_AUXILIARIES = _words(
    "do, may, might, shall, will, would, can, could, should, ought to, must, will have to, "
    "shall have to, could have to, should have to, must have to, need to, try to"
)
_PREPOSITIONS = _weighted(
    {
        50: "about, above, according to, across, after",
        40: "against, along",
        30: "alongside of, among",
        20: "around",
        10: "at",
        1: "atop, before, behind, beneath, beside, besides, between, beyond, by, despite, during, "
        "except, for, from, in place of, inside, instead of, into, near, of, on, outside, over, "
        "past, since, through, throughout, to, toward, under, until, up, upon, without, with, "
        "within",
    }
)
_STOPS = _weighted({50: ".", 1: ";, :, ?, !, --"})


@cache
def prose() -> npt.NDArray[np.uint8]:
    """The pool of sentences, as ASCII."""
    streams = count()

    def pick(words: pa.Array) -> pa.Array:
        at = below(draw(_POOL_SEED, next(streams), _SENTENCES), len(words))
        return words.take(pa.array(at))

    def one_of(weights: list[int], *phrases: pa.Array) -> pa.Array:
        return pc.choose(pick(pa.array(np.repeat(np.arange(len(phrases)), weights))), *phrases)

    def noun_phrase() -> pa.Array:
        noun, adjective = pick(_NOUNS), pick(_ADJECTIVES)
        return one_of(
            [1, 2, 1, 5],
            noun,
            _join(adjective, noun),
            _join(_join(pick(_ADJECTIVES), adjective, sep=", "), noun),
            _join(pick(_ADVERBS), adjective, noun),
        )

    def verb_phrase() -> pa.Array:
        verb, helped, adverb = pick(_VERBS), pick(_AUXILIARIES), pick(_ADVERBS)
        return one_of(
            [30, 1, 40, 1],
            verb,
            _join(helped, verb),
            _join(verb, adverb),
            _join(helped, verb, adverb),
        )

    def with_the() -> pa.Array:
        return _join(pick(_PREPOSITIONS), noun_phrase(), sep=" the ")

    subject, verb, object_ = noun_phrase(), verb_phrase(), noun_phrase()
    sentence = one_of(
        [3, 3, 3, 1, 1],
        _join(subject, verb),
        _join(subject, verb, with_the()),
        _join(subject, verb, object_),
        _join(subject, with_the(), verb, object_),
        _join(subject, with_the(), verb, with_the()),
    )
    text = " ".join(_join(sentence, pick(_STOPS), sep="").to_pylist())
    return np.frombuffer(text.encode("ascii"), dtype=np.uint8)


@cache
def scribble() -> npt.NDArray[np.uint8]:
    """The pool that addresses are cut from: characters without meaning."""
    letters = b"0123456789abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ,"
    chosen = below(draw(_POOL_SEED + 1, 0, np.arange(_ADDRESS_CHARS)), len(letters))
    return np.frombuffer(letters, dtype=np.uint8)[chosen]


def _join(*parts: pa.Array, sep: str = " ") -> pa.Array:
    return pc.binary_join_element_wise(*parts, sep)
