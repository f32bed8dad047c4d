"""cairn:rewriter -> rewrite -> cairn:retriever"""

from __future__ import annotations

from shared.clients.chat import ChatModel, Completion, Message

from services.rewriter.decision import Rewriting, language_of, read_rewriting, rewrite_by_rules, search
from services.rewriter.prompts import PROMPT_VERSION, system_prompt, user_prompt
from services.rewriter.settings import RewritingPolicy
from shared.contracts import Retrieve, Rewrite, StageUsage
from shared.errors import InvalidModelReply, Misconfigured, ModelUnavailable


async def rewrite(msg: Rewrite, *, chat: ChatModel | None, policy: RewritingPolicy) -> Retrieve:
    """Route the question and write its queries: by the model where there is one, by rules where it fails."""
    language = language_of(msg.asked)
    by_rules = rewrite_by_rules(msg, language, max_queries=policy.max_queries)
    if chat is None or msg.header.budget.model_calls == 0:
        return search(msg, by_rules, language)
    try:
        rewriting, usage = await _by_model(msg, chat, policy)
    except (ModelUnavailable, InvalidModelReply, Misconfigured) as failed:
        return search(msg, by_rules, language, degraded=(f"rewritten by rules: {failed}",))
    return search(msg, rewriting, language, usage=usage, version=PROMPT_VERSION)


async def _by_model(msg: Rewrite, chat: ChatModel, policy: RewritingPolicy) -> tuple[Rewriting, StageUsage]:
    completion = await chat.complete(
        [
            Message(role="system", content=system_prompt(policy.max_queries)),
            Message(role="user", content=user_prompt(msg)),
        ],
        max_tokens=policy.max_tokens,
        timeout_s=policy.timeout_s,
    )
    rewriting = read_rewriting(completion.text, msg.asked.question, max_queries=policy.max_queries)
    return rewriting, _usage(completion)


def _usage(completion: Completion) -> StageUsage:
    return StageUsage(
        stage="rewriter",
        calls=1,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        estimated=completion.estimated,
    )
