"""cairn:rewriter -> rewrite -> cairn:retriever or cairn:generator"""

from __future__ import annotations

import secrets
import time

from services.rewriter.decision import by_model, by_rules, next_command, offered
from services.rewriter.prompts import REPLY_KEYS, Prompt
from services.rewriter.rules import language_of
from services.rewriter.settings import RewritingPolicy
from shared.clients.chat import ChatModel, NoCompletion, ReplySchema, completion_or_reason, spent
from shared.clients.json_replies import object_in
from shared.contracts import Generate, Retrieve, Rewrite

BUDGET_SPENT = "the job's budget for models is spent"


async def rewrite(msg: Rewrite, *, chat: ChatModel | None, policy: RewritingPolicy) -> Retrieve | Generate:
    """Write the queries: by the model, or by rules without one or when it fails.

    Small talk, what nobody can understand, and a hop without a new query are not searched.
    """
    header, language = msg.header, language_of(msg.asked)
    found = by_rules(msg, language, policy)
    if found.is_settled or chat is None or not policy.use_model:
        return next_command(msg, found, language)
    if header.budget.spent:
        # A job that was given no budget at all lives on embedded parts; that is no degradation.
        return next_command(msg, found.standing_in(BUDGET_SPENT) if header.usage else found, language)
    prompt = Prompt(msg, language, policy, offered(msg, policy))
    completion = await completion_or_reason(
        chat,
        prompt.conversation(fence=secrets.token_hex(4)),
        max_tokens=policy.max_tokens,
        schema=ReplySchema("rewriting", prompt.reply_schema),
        timeout_s=min(policy.timeout_s, (header.deadline - time.time()) * policy.share_of_time),
    )
    if isinstance(completion, NoCompletion):
        return next_command(msg, found.standing_in(completion.reason), language)
    found = by_model(msg, object_in(completion.text, REPLY_KEYS), found, language, policy)
    return next_command(msg, found, language, spent("rewriter", completion))
