"""What each epoch does about the cache: which graph it runs, what it writes, what it reads.

Which point is stored is chosen elsewhere; here is known what lies in the store and what is under
way. What an epoch wrote is committed once the epoch has ended, and only if it is complete. A
failure of the cache costs time, never an epoch: the epoch computes.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import shutil
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack
from typing import Any

from cachew_core.cache import (
    JSON,
    Entry,
    NotCompleteError,
    Proof,
    Store,
    Writing,
    lay_proof,
)
from cachew_core.cache.usage import last_used_s, note_use
from cachew_core.dispatcher.choosing import Chooser, Offer, Offers
from cachew_core.dispatcher.events import event
from cachew_core.dispatcher.handout import Handout
from cachew_core.dispatcher.history import History
from cachew_core.dispatcher.jobs import Epoch, EpochState, Job
from cachew_core.dispatcher.plans import (
    EpochPlan,
    computed,
    examine,
    reading_graph_of,
    why_not_cached,
)
from cachew_core.dispatcher.sources import TRUSTED, SourceLook
from cachew_core.errors import CacheError, CachewError
from cachew_core.pipeline.points import CachePoint
from cachew_core.pipeline.writing import writing_graph
from cachew_core.policy.decisions import Decision
from cachew_core.policy.modes import END, Mode, get_mode, put_mode

log = logging.getLogger(__name__)

FINALIZE_S = 2.0
"""A trainer that knows the length stops at the last element, while workers still close files."""

POLL_S = 0.1

COMMIT_WAIT_S = 60.0
"""An epoch waits so long for the commit of the one before it: some tens of GB are read for that."""

_ERRORS_IGNORED = (
    "ignore_errors swallowed errors in it, and what one failure cut short must not stay that way"
)

STRAGGLERS_S = 5.0
"""After so long, no worker runs any more what an epoch ran that has ended."""

FETCH_WAIT_S = 60.0
"""An epoch waits so long until all worker nodes have fetched what it is to read."""

LEAST_ROOM_BYTES = 64 * 2**20
"""Nothing is written on a fuller volume: an epoch that fills it fails."""


class Autocache:
    """Plans epochs and looks after what they write.

    Args:
        store: where entries lie; None: nothing is ever stored.
        chooser: says which point of a job is stored.
        history: what outlives this process.
        clock: of epochs, in seconds.
        look_at: gives what identifies source files now, or why nothing does.
    """

    def __init__(
        self,
        store: Store | None,
        chooser: Chooser,
        history: History,
        clock: Callable[[], float],
        look_at: Callable[[Sequence[str]], Awaitable[tuple[str, str]]],
    ) -> None:
        self.chooser = chooser
        self._look_at = look_at
        self._store = store
        self._history = history
        self._clock = clock
        self._settling: dict[asyncio.Task[None], Job] = {}
        self._unfinished: set[Epoch] = set()
        self._given_up: dict[Writing, asyncio.TimerHandle] = {}

    @property
    def is_writing(self) -> bool:
        """Whether there is an epoch whose data is not stored yet, and may be."""
        return bool(self._unfinished)

    def lay_proof(self) -> Proof | None:
        """What proves to a trainer that it sees the store's volume; None: there is no store.

        Raises:
            CacheError: the volume can't be written.
        """
        store = self._store
        return lay_proof(store.root) if store is not None and store.is_shared else None

    async def plan(self, epoch: Epoch) -> EpochPlan:
        """The epoch's plan; all its readers get the same one."""
        if epoch.planning is None:
            epoch.planning = asyncio.ensure_future(self._plan(epoch))
        plan: EpochPlan = await asyncio.shield(epoch.planning)
        return plan

    async def is_direct(self, epoch: Epoch) -> bool:
        """Whether the epoch's readers read files instead of asking workers.

        Where the pipeline's end is stored, the epoch is planned for this before it has workers.
        """
        if epoch.looking is None:
            epoch.looking = asyncio.ensure_future(self._look(epoch))
        await asyncio.shield(epoch.looking)
        return epoch.direct

    async def _look(self, epoch: Epoch) -> None:
        if self._store is None or epoch.planning is not None or not epoch.can_be_direct:
            return
        epoch.undecided = True
        try:
            await self._await_commits(epoch.job)
            offers = await self._offers(epoch.job, self._store)
            if END in offers.stored:
                epoch.planning = asyncio.ensure_future(self._plan(epoch, offers))
                await asyncio.shield(epoch.planning)
        except (CachewError, OSError) as error:
            log.debug("job %s: epoch %d can't be direct: %s", epoch.job.name, epoch.number, error)
        finally:
            epoch.undecided = False

    async def _plan(self, epoch: Epoch, offers: Offers | None = None) -> EpochPlan:
        plan = None if self._store is None else await self._cached(epoch, self._store, offers)
        if plan is None:
            plan = computed(epoch, Mode.COMPUTE)
        epoch.mode, epoch.point, epoch.handout = plan.mode, plan.point, plan.handout
        if plan.writing is not None:
            self._unfinished.add(epoch)
        epoch.when_settled(lambda: self._spawn(epoch.job, self._settled(epoch, plan)))
        return plan

    async def _cached(self, epoch: Epoch, store: Store, offers: Offers | None) -> EpochPlan | None:
        """The epoch's plan by the policy; None where the cache can't be used.

        Args:
            epoch: not planned yet.
            store: where entries lie.
            offers: as they are now, if somebody has looked; the epoch may then be direct.
        """
        try:
            direct = offers is not None
            if offers is None:
                await self._await_commits(epoch.job)
                offers = await self._offers(epoch.job, store)
            decision = await self.chooser.choose(epoch, offers, direct=direct)
            plan = await self._following(decision, epoch, store, offers)
            if plan is not None:
                plan.workers = decision.workers
            return plan
        except (CachewError, OSError) as error:
            self._compute_instead(epoch, f"the cache can't be used: {error}")
            return None
        # Whatever is wrong with the cache, a training that would run without it must run.
        except Exception as error:
            log.exception("job %s: the plan of epoch %d failed", epoch.job.name, epoch.number)
            self._compute_instead(epoch, f"the cache can't be used: {type(error).__name__}")
            return None

    async def _following(
        self, decision: Decision, epoch: Epoch, store: Store, offers: Offers
    ) -> EpochPlan | None:
        """The plan that a decision asks for; None where it can't be followed."""
        offer = offers.at(decision.point)
        if offer is None:
            return computed(epoch, decision.mode)
        if decision.direct:
            plan = await asyncio.to_thread(self._read_directly, epoch, store, offer)
            # Another trainer may have come meanwhile, which does not see the files.
            if plan is None or epoch.can_be_direct:
                return plan
            plan.held.close()
        if decision.mode.reads:
            return await asyncio.to_thread(self._read, epoch, store, offer)
        plan = await asyncio.to_thread(self._write, epoch, store, offer)
        if plan is not None:
            plan.sources = offers.sources
        return plan

    async def _await_commits(self, job: Job) -> None:
        """Waits for what the job's last epoch wrote: reading it is worth a moment."""
        own = [task for task, of in self._settling.items() if of is job]
        if own:
            await asyncio.wait(own, timeout=COMMIT_WAIT_S)

    def _compute_instead(self, epoch: Epoch, reason: str) -> None:
        log.warning("job %s: epoch %d computes: %s", epoch.job.name, epoch.number, reason)
        self.chooser.note(epoch, Decision(mode=Mode.COMPUTE, reason=f"COMPUTE: {reason}."))

    async def _offers(self, job: Job, store: Store) -> Offers:
        """What could be read or written, as the source files are now."""
        if refusal := why_not_cached(job.request) or await asyncio.to_thread(examine, job):
            return Offers(refusal=refusal)
        points = job.cache_points or ()
        sources = await self._sources(job)
        if isinstance(sources, str):
            return Offers(refusal=sources)
        return await asyncio.to_thread(self._offers_at, points, sources, store)

    async def _sources(self, job: Job) -> SourceLook | str:
        """What the files that a pipeline reads look like now; or why nobody can tell."""
        request, found = job.request, job.source_files
        if request.trust_sources:
            return TRUSTED
        if found is None:
            return "the job's last trainer left"
        if found.unknown and not request.sources:
            return found.unknown
        patterns = (*found.patterns, *request.sources)
        identity, problem = await self._look_at(patterns)
        return problem or SourceLook(patterns=patterns, identity=identity)

    def _offers_at(self, points: Sequence[CachePoint], sources: SourceLook, store: Store) -> Offers:
        offers = []
        for point in points:
            key = hashlib.sha256(f"{point.fingerprint}:{sources.identity}".encode()).hexdigest()
            entry = None if point.refusal else store.find(key)
            offers.append(Offer(point=point, key=key, entry=entry))
        return Offers(offers=tuple(offers), sources=sources, free_bytes=store.available_bytes())

    def _write(self, epoch: Epoch, store: Store, offer: Offer) -> EpochPlan | None:
        if shutil.disk_usage(store.root).free < LEAST_ROOM_BYTES:
            self._compute_instead(
                epoch, f"the cache's volume has less than {LEAST_ROOM_BYTES} bytes left"
            )
            return None
        writing = store.begin(offer.key)
        if writing is None:
            stored = offer.entry is not None
            self._compute_instead(
                epoch,
                "it is stored already" if stored else "another epoch is writing the same data",
            )
            return None
        try:
            graph = writing_graph(
                epoch.job.request.graph,
                offer.point.node,
                str(writing.path),
                str(writing.witness or ""),
            )
        except BaseException:
            store.abandon(writing)
            raise
        return EpochPlan(
            mode=put_mode(offer.point.name),
            graph=graph,
            name=f"put-{offer.key}-{epoch.number}",
            writing=writing,
            point=offer.point.name,
        )

    def _read(self, epoch: Epoch, store: Store, offer: Offer) -> EpochPlan | None:
        with ExitStack() as held:
            entry = self._held(epoch, store, offer, held)
            if entry is None:
                return None
            # The key alone is no name: an entry that was given up is written again in other files.
            name = f"get-{offer.key}-{entry.created_at.timestamp()}"
            return EpochPlan(
                mode=get_mode(offer.point.name),
                graph=reading_graph_of(epoch.job, name, offer.point, entry),
                name=name,
                point=offer.point.name,
                entry=entry,
                held=held.pop_all(),
            )

    def _read_directly(self, epoch: Epoch, store: Store, offer: Offer) -> EpochPlan | None:
        with ExitStack() as held:
            entry = self._held(epoch, store, offer, held)
            if entry is None:
                return None
            return EpochPlan(
                mode=get_mode(offer.point.name),
                graph=b"",
                name="direct",
                point=offer.point.name,
                handout=Handout(store, entry, shuffled=bool(offer.point.shuffles)),
                held=held.pop_all(),
            )

    def _held(self, epoch: Epoch, store: Store, offer: Offer, held: ExitStack) -> Entry | None:
        """The entry, which stays where it is until `held` is closed; None: it is gone."""
        held.enter_context(store.use(offer.key))
        # It may have made room for another one before it was held.
        entry = store.find(offer.key)
        if entry is None:
            self._compute_instead(epoch, "what was stored is gone")
            return None
        if not store.make_ready(entry, wait_s=FETCH_WAIT_S):
            self._compute_instead(epoch, "what was stored is still on its way to the workers")
            return None
        note_use(entry)
        self._history.entry_used(offer.key)
        return entry

    # Once an epoch has ended

    async def check_read(self, epoch: Epoch) -> None:
        """Makes sure that what an epoch's workers have read was whole: a file that is cut short
        while it is read ends without an error.

        Raises:
            CacheError: a file is not as it was stored.
        """
        store, plan = self._store, await self.plan(epoch)
        if store is None or plan.entry is None or not store.is_shared:
            return
        problem = await asyncio.to_thread(_problem_of_read, store, plan.entry)
        if problem:
            raise CacheError(
                f"cache entry {plan.entry.key[:12]} was changed while it was read: {problem}; "
                "start the epoch again, and it computes what is not stored"
            )

    def _spawn(self, job: Job, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._settling[task] = job
        task.add_done_callback(self._settling.pop)

    async def _settled(self, epoch: Epoch, plan: EpochPlan) -> None:
        try:
            await asyncio.to_thread(plan.held.close)
            await asyncio.to_thread(self._history.keep_epoch, epoch, self._clock())
            if plan.writing is not None and self._store is not None:
                await self._finish_writing(epoch, self._store, plan, plan.writing)
        except (CachewError, OSError) as error:
            log.warning("job %s: epoch %d: %s", epoch.job.name, epoch.number, error)
        finally:
            self._unfinished.discard(epoch)

    def errors_ignored(self, epoch: Epoch) -> None:
        """The epoch's `ignore_errors` has swallowed something: it may be known late."""
        key, epoch.stored = epoch.stored, ""
        if key and self._store is not None:
            self.chooser.not_stored(epoch, epoch.point, _ERRORS_IGNORED)
            self._spawn(epoch.job, self._drop(key, self._store))

    async def _drop(self, key: str, store: Store) -> None:
        await asyncio.to_thread(store.drop, key)
        await asyncio.to_thread(self._history.entry_removed, key)

    async def _finish_writing(
        self, epoch: Epoch, store: Store, plan: EpochPlan, writing: Writing
    ) -> None:
        reason = f"the epoch {epoch.state}"
        if epoch.state is EpochState.FINISHED:
            reason = await self._change_of(plan.sources)
        if not reason:
            reason = await self._commit(epoch, store, plan, writing)
        if reason:
            self.chooser.not_stored(epoch, plan.point, reason)
            await asyncio.to_thread(store.abandon, writing)
            self._given_up[writing] = asyncio.get_running_loop().call_later(
                STRAGGLERS_S, self._abandon_again, store, writing
            )
            log.info(
                "job %s: what epoch %d wrote at %r is dropped: %s",
                epoch.job.name,
                epoch.number,
                plan.point,
                reason,
                extra=event("cache_dropped", job=epoch.job.name, epoch=epoch.number),
            )

    async def _change_of(self, sources: SourceLook | None) -> str:
        """Why what was read of these files may be neither what they were nor what they are."""
        if sources is None or not sources.patterns:
            return ""
        try:
            identity, problem = await self._look_at(sources.patterns)
        except CachewError as error:
            return str(error)
        changed = "source files changed while they were read"
        return problem or ("" if identity == sources.identity else changed)

    def _abandon_again(self, store: Store, writing: Writing) -> None:
        self._given_up.pop(writing).cancel()
        asyncio.get_running_loop().run_in_executor(None, store.abandon, writing)

    async def _commit(self, epoch: Epoch, store: Store, plan: EpochPlan, writing: Writing) -> str:
        """Why it could not be committed; empty if it was."""
        facts: dict[str, JSON] = {"job": epoch.job.name, "point": plan.point, "epoch": epoch.number}
        deadline = time.monotonic() + FINALIZE_S
        # Each of them writes, though it may have had nothing to write.
        runs = max(1, len(epoch.tasks))
        while True:
            if epoch.swallowed.errors > 0:
                return _ERRORS_IGNORED
            try:
                entry = await asyncio.to_thread(store.commit, writing, least_runs=runs, facts=facts)
            except NotCompleteError as error:
                if time.monotonic() > deadline:
                    return f"{error} ({await asyncio.to_thread(_free_words, store)})"
                await asyncio.sleep(POLL_S)
            except CacheError as error:
                return str(error)
            else:
                log.info(
                    "job %s: epoch %d stored %d elements, %d bytes, at %r",
                    epoch.job.name,
                    epoch.number,
                    entry.elements,
                    entry.bytes,
                    plan.point,
                    extra=event(
                        "cache_stored",
                        job=epoch.job.name,
                        epoch=epoch.number,
                        point=plan.point,
                        bytes=entry.bytes,
                    ),
                )
                await asyncio.to_thread(self._stored, epoch, store, entry, plan.point)
                epoch.stored = entry.key
                if epoch.swallowed.errors:
                    self.errors_ignored(epoch)
                return ""

    def _stored(self, epoch: Epoch, store: Store, entry: Entry, point: str) -> None:
        # Not known before it was read: at most all of the epoch that wrote it.
        saves_s = epoch.seconds(self._clock())
        self._history.keep_entry(epoch, entry, point, saves_s=saves_s)
        if store.capacity_bytes is not None:
            self._make_room(store)

    def _make_room(self, store: Store) -> None:
        """Removes what is worth least, and of what is worth the same what was not read for long."""
        worth, before = self._history.benefits(), store.entries()
        order = sorted(before, key=lambda entry: (worth.get(entry.key, 0.0), last_used_s(entry)))
        ranks = {entry.key: float(rank) for rank, entry in enumerate(order)}
        if not store.make_room(0, lambda entry: ranks.get(entry.key, math.inf)):
            log.warning(
                "the cache is over its %d bytes, and all of it is in use", store.capacity_bytes
            )
        left = {entry.key for entry in store.entries()}
        for entry in before:
            if entry.key not in left:
                self._history.entry_removed(entry.key)

    async def stop(self) -> None:
        """Waits for what is being committed, and lets go of the store and the history."""
        await self.chooser.stop()
        if self._settling:
            await asyncio.wait(self._settling, timeout=2 * FINALIZE_S)
        if self._store is not None:
            for writing in list(self._given_up):
                self._given_up.pop(writing).cancel()
                await asyncio.to_thread(self._store.abandon, writing)
            await asyncio.to_thread(self._store.close)
        await asyncio.to_thread(self._history.close)


def _free_words(store: Store) -> str:
    """How full the volume is: the usual reason why something could not be written."""
    try:
        return f"{shutil.disk_usage(store.root).free} bytes are left on its volume"
    except OSError as error:
        return f"its volume can't be read: {error}"


def _problem_of_read(store: Store, entry: Entry) -> str:
    # One that is gone was whole for who had opened it, and an error for whoever opened it later.
    there = [chunk for chunk in entry.files if (entry.path / chunk.path).exists()]
    return store.check(entry, there)
