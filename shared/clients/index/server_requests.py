"""What a Qdrant server is asked, in its client's words."""

from __future__ import annotations

from typing import Any

from qdrant_client import models

from shared.clients.index.conditions import Above, AnyOf, Condition, Conditions, NoneOf
from shared.clients.index.lexical import SparseVector
from shared.clients.index.points import DENSE, LEXICAL, Stored, passage_id_of, payload_of
from shared.clients.index.searching import Look
from shared.clients.index.types import PassageVectors
from shared.contracts import Document


def point_of(document: Document, passage_total: int, passage: PassageVectors, how: Stored) -> models.PointStruct:
    vectors: dict[str, Any] = {}
    if passage.lexical:
        vectors[LEXICAL] = _sparse(passage.lexical)
    if passage.dense is not None:
        vectors[DENSE] = passage.dense.tolist()
    payload = payload_of(document, passage_total, passage.draft, how)
    return models.PointStruct(id=passage_id_of(document, passage.draft.ordinal), vector=vectors, payload=payload)


def request_of(look: Look) -> models.QueryRequest:
    vector = _sparse(look.vector) if isinstance(look.vector, SparseVector) else look.vector
    corpus = models.IdfCorpusParams(corpus=filter_of(look.corpus)) if look.corpus else None
    return models.QueryRequest(
        query=vector,
        using=look.using,
        filter=filter_of(look.must, among=look.among),
        params=models.SearchParams(idf=corpus) if corpus else None,
        limit=look.limit,
        with_payload=look.with_payload,
    )


def _sparse(vector: SparseVector) -> models.SparseVector:
    return models.SparseVector(indices=list(vector.indices), values=list(vector.values))


def filter_of(must: Conditions, *, among: frozenset[str] | None = None) -> models.Filter:
    wanted: list[models.Condition] = [_wanted(one) for one in must if not isinstance(one, NoneOf)]
    excluded: list[models.Condition] = [_wanted(one) for one in must if isinstance(one, NoneOf)]
    if among is not None:
        wanted.append(models.HasIdCondition(has_id=list(among)))
    return models.Filter(must=wanted, must_not=excluded or None)


def _wanted(condition: Condition) -> models.FieldCondition:
    if isinstance(condition, AnyOf | NoneOf):
        return models.FieldCondition(key=condition.field, match=models.MatchAny(any=list(condition.values)))
    if isinstance(condition, Above):
        return models.FieldCondition(key=condition.field, range=models.Range(gt=condition.limit))
    return models.FieldCondition(key=condition.field, range=models.Range(gte=condition.at_least, lte=condition.at_most))
