"""LangGraph: the graph of its corrective-RAG tutorial, node by node and edge by edge.

Passages are graded one after the other by a model with a structured yes or no; one no sends the question to the web.
Its rewriting of the query and its answer, a model call each, are left out: only the grading is compared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field, SecretStr
from typing_extensions import TypedDict

from bench.peers.asked import AskedQuestion, Side

SYSTEM = (
    "You grade whether a retrieved document is relevant to a user's question. It need not be a strict test: the goal "
    "is to filter out retrievals that are plainly wrong. Say yes or no."
)


class GradeDocuments(BaseModel):
    """Whether a document is relevant."""

    binary_score: str = Field(description="yes or no")


class GraphState(TypedDict, total=False):
    question: str
    generation: str
    web_search: str
    searches: int
    documents: list[Document]


@asynccontextmanager
async def opened(base_url: str) -> AsyncIterator[Side]:
    model = ChatOpenAI(model="mock", base_url=base_url, api_key=SecretStr("none"), temperature=0, max_retries=0)
    prompt = ChatPromptTemplate.from_messages(
        [("system", SYSTEM), ("human", "Retrieved document:\n\n{document}\n\nUser question: {question}")]
    )
    retrieval_grader: Any = prompt | model.with_structured_output(GradeDocuments)

    def retrieve(state: GraphState) -> GraphState:
        return {"documents": state["documents"]}

    def grade_documents(state: GraphState) -> GraphState:
        filtered, web_search = [], "No"
        for document in state["documents"]:
            score = retrieval_grader.invoke({"question": state["question"], "document": document.page_content})
            if score.binary_score == "yes":
                filtered.append(document)
            else:
                web_search = "Yes"
        return {"documents": filtered, "web_search": web_search}

    def transform_query(state: GraphState) -> GraphState:
        return {"question": state["question"]}

    def web_search(state: GraphState) -> GraphState:
        found = Document(page_content="found on the web")
        return {"documents": [*state["documents"], found], "searches": state["searches"] + 1}

    def generate(state: GraphState) -> GraphState:
        return {"generation": f"from {len(state['documents'])} documents"}

    def decide_to_generate(state: GraphState) -> str:
        return "transform_query" if state["web_search"] == "Yes" else "generate"

    graph: Any = StateGraph(GraphState)
    graph.add_node("retrieve", retrieve)
    graph.add_node("grade_documents", grade_documents)
    graph.add_node("generate", generate)
    graph.add_node("transform_query", transform_query)
    graph.add_node("web_search_node", web_search)
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "grade_documents")
    graph.add_conditional_edges("grade_documents", decide_to_generate, ["transform_query", "generate"])
    graph.add_edge("transform_query", "web_search_node")
    graph.add_edge("web_search_node", "generate")
    graph.add_edge("generate", END)
    app = graph.compile()

    async def side(asked: AskedQuestion) -> bool:
        documents = [Document(page_content=text) for text in asked.passages]
        end = await app.ainvoke({"question": asked.question, "documents": documents, "searches": 0})
        return bool(end["searches"])

    yield side
