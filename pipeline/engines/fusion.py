"""Several retrievers as one, by reciprocal rank fusion of what each finds."""

from collections.abc import Sequence
from itertools import chain
from math import fsum

from pipeline.core.fusion import reciprocal_rank_fusion
from pipeline.engines.base import Hit, ModelNotFound, Passage, Retriever
from pipeline.runs.fingerprint import digest


class FusionRetriever:
    """See engines.base.Retriever; a hit's score is its fused one."""

    def __init__(self, members: Sequence[Retriever], *, k: int, depth: int) -> None:
        self._members, self._k, self._depth = members, k, depth
        self.fingerprint = fingerprint([member.fingerprint for member in members])

    def search(self, questions: Sequence[str], *, n: int) -> list[list[Hit]]:
        """See engines.base.Retriever; every member is asked for `depth` passages."""
        found = [member.search(questions, n=self._depth) for member in self._members]
        return [self._fuse(lists)[:n] for lists in zip(*found, strict=True)]

    def score(self, question: str, passages: Sequence[Passage]) -> list[float]:
        """See engines.base.Retriever: the sum over members of 1 / (k + rank among the given).

        A member gives equal scores the same rank, so that the order of the given tells nothing.
        """
        ranks = [_ranks(member.score(question, passages)) for member in self._members]
        return [fsum(1 / (self._k + r) for r in own) for own in zip(*ranks, strict=True)]

    def _fuse(self, lists: Sequence[Sequence[Hit]]) -> list[Hit]:
        """ModelNotFound where two members hold other texts under one passage id."""
        texts: dict[str, Hit] = {}
        for hit in chain.from_iterable(lists):
            first = texts.setdefault(hit.passage_id, hit)
            if (first.title, first.text) != (hit.title, hit.text):
                raise ModelNotFound(
                    f"retriever.of: passage {hit.passage_id!r} has two texts; "
                    "the indexes of a fusion must be over one corpus"
                )
        rankings = [[hit.passage_id for hit in hits] for hits in lists]
        return [
            Hit(passage_id, texts[passage_id].title, texts[passage_id].text, score)
            for passage_id, score in reciprocal_rank_fusion(rankings, k=self._k)
        ]


def _ranks(scores: Sequence[float]) -> list[int]:
    """1 + how many scores are higher, for each."""
    ordered = sorted(scores, reverse=True)
    return [1 + ordered.index(score) for score in scores]


def fingerprint(members: Sequence[str]) -> str:
    """Of a fusion, from its members' in order."""
    return digest(list(members))
