"""What the embedded engine is asked, in its own words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import qdrant_edge as qe

from shared.clients.index.conditions import Above, AnyOf, Condition, Conditions, NoneOf
from shared.clients.index.lexical import SparseVector
from shared.clients.index.manifest import Manifest
from shared.clients.index.points import DENSE, LEXICAL, Stored, passage_id_of, payload_of
from shared.clients.index.searching import Look, Scored
from shared.clients.index.types import PassageVectors
from shared.contracts import Document

_NEVER_INDEX_KB: Final = 1_000_000_000
"""Threshold above which the engine would build a graph: optimising then only clears away what was deleted."""


def config_of(manifest: Manifest) -> qe.EdgeConfig:
    dense = manifest.dimension
    return qe.EdgeConfig(
        vectors={DENSE: qe.EdgeVectorParams(size=dense, distance=qe.Distance.Cosine)} if dense is not None else None,
        sparse_vectors={LEXICAL: qe.EdgeSparseVectorParams(modifier=qe.Modifier.Idf)},
        optimizers=qe.EdgeOptimizersConfig(indexing_threshold=_NEVER_INDEX_KB),
    )


def point_of(document: Document, passage_total: int, passage: PassageVectors, how: Stored) -> qe.Point:
    vectors: dict[str, qe.NamedVector] = {}
    if passage.lexical:
        vectors[LEXICAL] = _sparse(passage.lexical)
    if passage.dense is not None:
        vectors[DENSE] = passage.dense.tolist()
    payload = payload_of(document, passage_total, passage.draft, how)
    return qe.Point(passage_id_of(document, passage.draft.ordinal), vectors, payload)


def look_up(shard: qe.EdgeShard, looks: Sequence[Look]) -> list[list[Scored]]:
    lists = shard.query_batch(qe.QueryBatchRequest([_request(look) for look in looks]))
    return [[Scored(str(point.id), point.score, point.payload) for point in found] for found in lists]


def _request(look: Look) -> qe.QueryRequest:
    vector = _sparse(look.vector) if isinstance(look.vector, SparseVector) else look.vector
    corpus = qe.SearchParams(idf=qe.IdfParams(filter_of(look.corpus))) if look.corpus else None
    return qe.QueryRequest(
        limit=look.limit,
        query=qe.Query.Nearest(vector, using=look.using),
        filter=filter_of(look.must, among=look.among),
        params=corpus,
        with_payload=look.with_payload,
    )


def _sparse(vector: SparseVector) -> qe.SparseVector:
    return qe.SparseVector(list(vector.indices), list(vector.values))


def filter_of(must: Conditions, *, among: frozenset[str] | None = None) -> qe.Filter:
    wanted: list[qe.ConditionType] = [_wanted(one) for one in must if not isinstance(one, NoneOf)]
    excluded: list[qe.ConditionType] = [_wanted(one) for one in must if isinstance(one, NoneOf)]
    if among is not None:
        wanted.append(qe.HasIdCondition(set(among)))
    return qe.Filter(must=wanted, must_not=excluded or None)


def _wanted(condition: Condition) -> qe.FieldCondition:
    if isinstance(condition, AnyOf | NoneOf):
        return qe.FieldCondition(condition.field, match=qe.MatchAny(list(condition.values)))
    if isinstance(condition, Above):
        return qe.FieldCondition(condition.field, range=qe.RangeFloat(gt=condition.limit))
    return qe.FieldCondition(condition.field, range=qe.RangeFloat(gte=condition.at_least, lte=condition.at_most))
