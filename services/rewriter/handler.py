"""cairn:rewriter -> rewrite -> cairn:retriever"""

from __future__ import annotations

import time

from services.rewriter.decision import by_model, language_of, rewrite_by_rules, search, without_model
from services.rewriter.prompts import conversation
from services.rewriter.settings import RewritingPolicy
from shared.clients.chat import ChatModel, NoCompletion, completion_or_reason
from shared.contracts import Retrieve, Rewrite, StageUsage


async def rewrite(msg: Rewrite, *, chat: ChatModel | None, policy: RewritingPolicy) -> Retrieve:
    """Route the question and write its queries: by the model, or by rules without one or when it fails."""
    language = language_of(msg.asked)
    rules = rewrite_by_rules(msg, language, max_queries=policy.max_queries)
    if chat is None or msg.header.budget.model_calls == 0:
        return search(msg, rules, language)
    completion = await completion_or_reason(
        chat,
        conversation(msg, policy.max_queries),
        max_tokens=policy.max_tokens,
        timeout_s=min(policy.timeout_s, (msg.header.deadline - time.time()) * policy.share_of_time),
    )
    if isinstance(completion, NoCompletion):
        return without_model(msg, rules, language, completion.reason)
    usage = StageUsage(
        stage="rewriter",
        calls=1,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        estimated=completion.estimated,
    )
    return by_model(msg, completion.text, usage, rules, language, max_queries=policy.max_queries)
