"""LlamaIndex: the corrective-RAG workflow of its documentation (its pack is the same on an older core), step by step.

Passages are graded one after the other by yes or no, in a step that waits for the model without giving way to others;
one no sends the question to the web. Its rewriting of the query and its answer are left out: only grading is compared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from llama_index.core import PromptTemplate
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step
from llama_index.llms.openai_like import OpenAILike

from bench.peers.asked import AskedQuestion, Side

RELEVANCY = PromptTemplate(
    "You grade whether a document that was retrieved for a user's question is relevant.\n\n"
    "Retrieved document:\n{context_str}\n\nUser question:\n{query_str}\n\n"
    "It need not be a strict test: the goal is to filter out retrievals that are plainly wrong. Answer yes or no."
)


class RetrieveEvent(Event):  # type: ignore[misc]
    retrieved_nodes: list[NodeWithScore]


class RelevanceEvalEvent(Event):  # type: ignore[misc]
    relevant_results: list[str]


class TextExtractEvent(Event):  # type: ignore[misc]
    relevant_text: str


class QueryEvent(Event):  # type: ignore[misc]
    relevant_text: str
    search_text: str


class CorrectiveRAGWorkflow(Workflow):  # type: ignore[misc]
    def __init__(self, llm: OpenAILike) -> None:
        super().__init__(timeout=60)
        self.llm = llm

    @step  # type: ignore[untyped-decorator]
    async def retrieve(self, ctx: Context, ev: StartEvent) -> RetrieveEvent:
        await ctx.store.set("query_str", ev.query_str)
        await ctx.store.set("retrieved_nodes", ev.nodes)
        return RetrieveEvent(retrieved_nodes=ev.nodes)

    @step  # type: ignore[untyped-decorator]
    async def eval_relevance(self, ctx: Context, ev: RetrieveEvent) -> RelevanceEvalEvent:
        query = await ctx.store.get("query_str")
        found = []
        for node in ev.retrieved_nodes:
            prompt = RELEVANCY.format(context_str=node.text, query_str=query)
            found.append(self.llm.complete(prompt).text.lower().strip())
        await ctx.store.set("relevancy_results", found)
        return RelevanceEvalEvent(relevant_results=found)

    @step  # type: ignore[untyped-decorator]
    async def extract_relevant_texts(self, ctx: Context, ev: RelevanceEvalEvent) -> TextExtractEvent:
        nodes = await ctx.store.get("retrieved_nodes")
        kept = [node.text for node, word in zip(nodes, ev.relevant_results, strict=True) if word == "yes"]
        return TextExtractEvent(relevant_text="\n".join(kept))

    @step  # type: ignore[untyped-decorator]
    async def transform_query(self, ctx: Context, ev: TextExtractEvent) -> QueryEvent:
        searched = "no" in await ctx.store.get("relevancy_results")
        return QueryEvent(relevant_text=ev.relevant_text, search_text="found on the web" if searched else "")

    @step  # type: ignore[untyped-decorator]
    async def query_result(self, ev: QueryEvent) -> StopEvent:
        return StopEvent(result=bool(ev.search_text))


@asynccontextmanager
async def opened(base_url: str) -> AsyncIterator[Side]:
    llm = OpenAILike(model="mock", api_base=base_url, api_key="none", is_chat_model=True, temperature=0, max_retries=0)

    async def side(asked: AskedQuestion) -> bool:
        nodes = [NodeWithScore(node=TextNode(text=text)) for text in asked.passages]
        return bool(await CorrectiveRAGWorkflow(llm).run(query_str=asked.question, nodes=nodes))

    yield side
