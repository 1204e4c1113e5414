"""The suite that every store passes: one test, or more, for each sentence of `store/contract`.

A backend's test module has a fixture `backend` that says how its store is opened, and one more line:

    class TestSqliteStore(StoreContract): ...

The suite knows the contract only, no backend and no SQL. Its parts are split by noun; what is special to one
backend (files, crashes) is tested beside that backend.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from harken.store.contract import Store
from harken.testing import FakeClock
from tests.contracts.actions import ActionSuite, AnswerSuite
from tests.contracts.approvals import ApprovalSuite
from tests.contracts.automation_model import ReactionMachine
from tests.contracts.conversations import ConversationSuite
from tests.contracts.health import VitalsSuite
from tests.contracts.leases import TenureSuite
from tests.contracts.questions import QuestionSuite
from tests.contracts.rules import JudgingSuite, OnceSuite, RuleUpkeepSuite, WindowSuite
from tests.contracts.runs import AncestrySuite, RunSuite
from tests.contracts.store_choices import ChoiceSuite
from tests.contracts.store_deliveries import EnrollSuite, LeaseSuite, OfferSuite, ProofSuite
from tests.contracts.store_filters import BeforeCommitSuite, OfferFilterSuite, SurfaceSuite, TransferSuite
from tests.contracts.store_journal import JournalSuite, RestartSuite, RetentionSuite
from tests.contracts.store_messages import AppendConcurrencySuite, AppendSuite, FindSuite, SearchSuite
from tests.contracts.store_model import Machine
from tests.contracts.store_replies import AccessSuite, ReplySuite
from tests.contracts.store_schedule import ScheduleSuite
from tests.contracts.store_subscriptions import SubscriptionSuite
from tests.contracts.store_suite import Backend, Journal
from tests.contracts.store_tokens import TokenSuite
from tests.contracts.store_waits import WaitSuite
from tests.contracts.tasks import TaskMailSuite, TaskSuite
from tests.contracts.timeline import BelongingSuite, OverviewSuite, PromptSuite, PulseSuite, TimelineSuite, UnseenSuite
from tests.examples import examples


class ModelSuite:
    """The store and a simple model of it live through the same random stories."""

    @pytest.mark.hypothesis
    def test_store_agrees_with_the_model(self, backend: Backend, tmp_path: Path) -> None:
        """Counts, cursors, offers and the ledger are kept in different places; no story may drive them apart."""
        open_store = _fresh_folders(backend, tmp_path)

        class BackendMachine(Machine):
            """The story, on this backend."""

            def __init__(self) -> None:
                super().__init__(open_store)

        run_state_machine_as_test(BackendMachine, settings=settings(max_examples=examples(60), stateful_step_count=25))

    @pytest.mark.hypothesis
    def test_rules_actions_and_runs_agree_with_their_model(self, backend: Backend, tmp_path: Path) -> None:
        """What waits, what decides and what happened are kept in different rows; no story may drive them apart."""
        open_store = _fresh_folders(backend, tmp_path)

        class BackendMachine(ReactionMachine):
            """The story, on this backend."""

            def __init__(self) -> None:
                super().__init__(open_store)

        run_state_machine_as_test(BackendMachine, settings=settings(max_examples=examples(25), stateful_step_count=25))


def _fresh_folders(
    backend: Backend, folder: Path
) -> Callable[[FakeClock, Journal], AbstractAsyncContextManager[Store]]:
    """Return how each story gets a store of its own."""
    stories = count()

    def open_store(clock: FakeClock, journal: Journal) -> AbstractAsyncContextManager[Store]:
        own = folder / str(next(stories))
        own.mkdir()
        return backend(own, clock, journal)

    return open_store


class StoreContract:
    """Everything a store promises, by noun."""

    TestAppend = AppendSuite
    TestAppendConcurrency = AppendConcurrencySuite
    TestFind = FindSuite
    TestSearch = SearchSuite
    TestEnroll = EnrollSuite
    TestOffer = OfferSuite
    TestProof = ProofSuite
    TestLease = LeaseSuite
    TestOfferFilter = OfferFilterSuite
    TestChoice = ChoiceSuite
    TestTransfer = TransferSuite
    TestSurface = SurfaceSuite
    TestBeforeCommit = BeforeCommitSuite
    TestWait = WaitSuite
    TestReply = ReplySuite
    TestQuestion = QuestionSuite
    TestApproval = ApprovalSuite
    TestConversation = ConversationSuite
    TestTenure = TenureSuite
    TestVitals = VitalsSuite
    TestAccess = AccessSuite
    TestJournal = JournalSuite
    TestRetention = RetentionSuite
    TestRestart = RestartSuite
    TestTask = TaskSuite
    TestTaskMail = TaskMailSuite
    TestToken = TokenSuite
    TestSubscription = SubscriptionSuite
    TestSchedule = ScheduleSuite
    TestTimeline = TimelineSuite
    TestBelonging = BelongingSuite
    TestUnseen = UnseenSuite
    TestOverview = OverviewSuite
    TestPulse = PulseSuite
    TestPrompts = PromptSuite
    TestJudging = JudgingSuite
    TestWindow = WindowSuite
    TestOnce = OnceSuite
    TestRuleUpkeep = RuleUpkeepSuite
    TestAnswer = AnswerSuite
    TestAction = ActionSuite
    TestRun = RunSuite
    TestAncestry = AncestrySuite
    TestModel = ModelSuite
