"""One answer by the chat model: written, told while it is written, checked, and written once more where it is bad."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from services.generator import decision, prompts
from services.generator.checking import Weighed, claims_in, flaws, read_check, supported, weigh
from services.generator.decision import Written
from services.generator.reading import NoAnswer, Unusable, read_reply
from services.generator.settings import AnsweringPolicy
from services.generator.streaming import Provisional
from shared.clients.chat import (
    ChatModel,
    Completion,
    Message,
    NoCompletion,
    ReplySchema,
    completion_or_reason,
    estimated_tokens,
    spent,
)
from shared.contracts import Answered, Evidence, Generate, Header, Rewrite
from shared.runtime.telling import Telling

ATTEMPTS: Final = 2
"""Replies asked for: the second one with what was wrong with the first."""
RESERVE_S: Final = 1.0
"""Kept of the time to the deadline, to publish what there is when the model stays silent."""
BUDGET_SPENT: Final = "the job's budget for models is spent"
UNCHECKED: Final = "answer not checked by the model"

_CHECK: Final = ReplySchema("check", prompts.CHECK_SCHEMA)
_CHECK_TOKENS: Final = 300
_CHARS_PER_TOKEN: Final = 8
"""At most: a reply that is longer than its tokens allow is cut."""
_SETTLING_SHARE: Final = 0.1
"""Of the time in which a reply arrives, what may be spent on reading it before it is whole."""

Said = Callable[[str], None]


class Writing:
    """`held` tells, once the outcome is there, whether the model's answer stood its checks; None without one."""

    def __init__(
        self,
        msg: Generate,
        evidence: Sequence[Evidence],
        *,
        chat: ChatModel,
        policy: AnsweringPolicy,
        telling: Telling | None,
        now: Callable[[], float],
    ) -> None:
        self.held: bool | None = None
        self._msg, self._evidence, self._chat, self._policy, self._now = msg, evidence, chat, policy, now
        self._shown = prompts.fit(evidence, policy.passage_tokens, estimated_tokens)
        self._nonce = secrets.token_hex(8)
        self._telling, self._max_chars = telling, policy.answer_tokens * _CHARS_PER_TOKEN
        self._completions: list[Completion] = []
        self._versions = {"answer_prompt": prompts.PROMPT_VERSION}
        self._unchecked = ""

    async def outcome(self) -> Answered | Rewrite:
        """The answer; another hop, an abstention, or citations only where the model fails (promise 3)."""
        messages, mark = self._messages(), ""
        best: tuple[Written, Weighed] | None = None
        for _ in range(ATTEMPTS):
            async with self._heard() as said:
                reply = await self._ask(messages, self._policy.answer_tokens, said=said)
            if isinstance(reply, NoCompletion):
                mark = decision.citations_only(reply.reason)
                break
            match self._read(reply):
                case NoAnswer(missing):
                    return self._further(missing) or self._abstained()
                case Unusable(finding, mark):
                    pass
                case Written() as written:
                    weighed = await self._checked(written)
                    if not weighed.finding:
                        self.held = True
                        return self._answered(written, weighed.trust)
                    best, finding = (written, weighed), weighed.finding
            messages += [
                {"role": "assistant", "content": reply.text},
                {"role": "user", "content": prompts.correction(finding)},
            ]
        if best is not None:
            self.held = False
            return self._further(best[1].missing) or self._what_holds(*best)
        if mark:
            return decision.cited(self._header(mark), self._msg.verdict, self._evidence, now=self._now())
        return self._abstained()

    def _read(self, reply: Completion) -> Written | Unusable | NoAnswer:
        language, limit = self._msg.header.language, self._max_chars
        return read_reply(reply.text, reply.finish_reason, self._shown, language, max_chars=limit)

    async def _checked(self, written: Written) -> Weighed:
        """By words, numbers and names, and by the model, where it may be asked and says something that can be read."""
        language, question = self._msg.header.language, self._msg.asked.question
        claims = claims_in(written.answer, language)
        found = list(flaws(claims, written.evidence, question, language))
        check = None
        if self._policy.self_check:
            self._versions["check_prompt"] = prompts.CHECK_VERSION
            texts = {id(each.evidence): each for each in self._shown}
            cited = [texts[id(each)] for each in written.evidence]
            messages = prompts.checking(question, cited, claims, self._nonce)
            reply = await self._ask(messages, _CHECK_TOKENS, schema=_CHECK)
            why = reply.reason if isinstance(reply, NoCompletion) else "its reply can't be read"
            check = None if isinstance(reply, NoCompletion) else read_check(reply.text, len(claims))
            self._unchecked = "" if check is not None else f"{UNCHECKED}: {why}"
        return weigh(claims, found, check, enough=self._policy.check_from)

    def _what_holds(self, written: Written, weighed: Weighed) -> Answered:
        """The answer without what lacks support, or silence."""
        language = self._msg.header.language
        claims = claims_in(written.answer, language)
        rest = supported(written, claims, weighed.unsupported, language) if weighed.partly_usable else None
        return self._abstained() if rest is None else self._answered(rest, 1 - len(weighed.unsupported) / len(claims))

    async def _ask(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        *,
        schema: ReplySchema | None = None,
        said: Said | None = None,
    ) -> Completion | NoCompletion:
        budget = self._msg.header.budget.less(spent("generator", *self._completions))
        if budget.spent or budget.tokens < sum(estimated_tokens(message["content"]) for message in messages):
            return NoCompletion(BUDGET_SPENT)
        timeout_s = min(self._policy.timeout_s, self._msg.header.deadline - RESERVE_S - self._now())
        reply = await completion_or_reason(
            self._chat, messages, max_tokens=max_tokens, schema=schema, timeout_s=timeout_s, said=said
        )
        if isinstance(reply, Completion):
            self._completions.append(reply)
        return reply

    @asynccontextmanager
    async def _heard(self) -> AsyncIterator[Said | None]:
        """Tells what is settled of the growing reply, the first of it at once."""
        if self._telling is None:
            yield None
            return
        provisional, due = Provisional(len(self._shown), max_chars=self._max_chars), 0.0
        async with self._telling.about(self._msg.header.job_id) as tell:

            def said(raw: str) -> None:
                nonlocal due
                if (began := time.monotonic()) >= due:
                    if text := provisional.hear(raw):
                        tell(text)
                    due = time.monotonic() + (time.monotonic() - began) / _SETTLING_SHARE

            yield said

    def _messages(self) -> list[Message]:
        asked, policy = self._msg.asked, self._policy
        earlier = prompts.recent(asked.history, turns=policy.history_turns, chars=policy.history_chars)
        return [
            {"role": "system", "content": prompts.system_prompt(self._msg.header.language, self._nonce)},
            *({"role": turn.role, "content": turn.content} for turn in earlier),
            {"role": "user", "content": prompts.user_prompt(asked.question, self._shown, self._nonce)},
        ]

    def _header(self, *marks: str) -> Header:
        usage = spent("generator", *self._completions)
        degraded = tuple(mark for mark in marks if mark)
        return self._msg.header.updated(usage=usage, degraded=degraded, versions=self._versions)

    def _answered(self, written: Written, trust: float) -> Answered:
        header = self._header(self._unchecked)
        verdict, name = self._msg.verdict, self._chat.name
        return decision.answered(header, verdict, written, writer=name, now=self._now(), at_most=trust)

    def _abstained(self) -> Answered:
        return decision.abstained(self._msg, self._header(), self._policy, now=self._now())

    def _further(self, missing: str) -> Rewrite | None:
        return decision.further(self._msg, self._header(), missing, self._evidence, now=self._now())
