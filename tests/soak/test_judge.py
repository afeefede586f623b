# SPDX-License-Identifier: Apache-2.0
"""The judge accepts a history in which all is well, and refuses one for each promise that can be broken."""

import unittest
from array import array

from campaigns import MOST, shares
from figures import markdown, merged, summary, table
from judge import judge
from plan import KINDS, plan, settings
from published import MASK, values

WORLD = 2


class Story:
    """A history, told line by line; a tenth of a second passes with each."""

    def __init__(self):
        self.events, self.t, self.at = [], 100.0, 0
        self.tell("campaign", settings={"world": WORLD, "max_ckpt_num": 3}, missing={})

    def tell(self, event, **members):
        self.t += 0.1
        self.events.append({"t": self.t, "event": event, **members})
        return self

    def launch(self, number):
        self.at = number
        return self.tell("launch", launch=number, homes=["a", "b"])

    def save(self, step, ranks=WORLD):
        for rank in range(ranks):
            self.tell("save", launch=self.at, rank=rank, step=step)
        return self

    def commit(self, step):
        return self.save(step).tell("committed", launch=self.at, rank=0, step=step)

    def publish(self, step):
        self.tell("published", launch=self.at, rank=0, step=step)
        return self.tell("checked", name=f"v{step}.t{self.at}", term=self.at, step=step, origin=self.at, wrong="")

    def restore(self, origin, step, ranks=WORLD, **other):
        for rank in range(ranks):
            self.tell("restored", launch=self.at, rank=rank, origin=origin, step=step, term=origin,
                      **{"right": True, "local": 1, "twin": 0, "peer": 0, "storage": 0, **other})
        return self

    def fault(self, kind, destroys=(), **members):
        return self.tell("injected", number=1, kind=kind, began=self.t, destroys=list(destroys), **members)

    def end(self):
        number = self.at + 1
        newest = max(((e["origin"], e["step"]) for e in self.events if e["event"] == "restored"), default=(0, 0))
        newest = max([newest, *((e["launch"], e["step"]) for e in self.events if e["event"] == "committed")])
        self.launch(number).restore(*newest)
        return self.tell("finished", launch=number, statuses=[0] * WORLD).tell("gone", left=[])


def broken(story):
    return sorted({found["promise"] for found in judge(story.events)})


def begun():
    return Story().launch(1).commit(1).commit(2).publish(2).commit(3)


class AllIsWell(unittest.TestCase):
    def test_a_quiet_history(self):
        self.assertEqual(broken(begun().end()), [])

    def test_one_node_lost_and_all_is_restored(self):
        story = begun().fault("node_lost", ["a"]).launch(2).restore(1, 3).commit(4).fault("node_lost", ["b"])
        self.assertEqual(broken(story.launch(3).restore(2, 4).end()), [])

    def test_a_commit_that_nobody_saw_may_be_restored(self):
        self.assertEqual(broken(begun().save(4).fault("node_lost", ["a"]).launch(2).restore(1, 4).end()), [])

    def test_two_nodes_at_once_may_cost_what_is_not_published(self):
        story = begun().fault("two_nodes_lost", ["a", "b"]).launch(2).restore(1, 2).commit(3)
        self.assertEqual(broken(story.end()), [])

    def test_what_is_saved_while_nodes_are_being_lost_may_go_with_them(self):
        story = begun().commit(4)  # its save began after the fault did
        story.tell("injected", number=1, kind="two_nodes_lost", began=story.t - 0.5, destroys=["a", "b"])
        self.assertEqual(broken(story.launch(2).restore(1, 2).commit(3).end()), [])

    def test_a_damaged_published_version_may_be_passed_over(self):
        story = Story().launch(1).commit(1).publish(1).commit(2).publish(2)
        story.fault("published_damaged", hit="v2.t1", step=2).fault("all_nodes_lost", ["a", "b"])
        self.assertEqual(broken(story.launch(2).restore(1, 1).commit(2).end()), [])

    def test_a_stopped_trainer_may_be_held(self):
        story = begun().fault("trainer_stopped", seconds=20).tell("held", launch=1, rank=0, step=3, ms=19000.0)
        self.assertEqual(broken(story.end()), [])

    def test_an_agent_may_die_of_bytes_changed_on_the_wire(self):
        self.assertEqual(broken(begun().tell("agent_died", node="a", pid=7, excused=True, said="").end()), [])

    def test_an_agent_may_be_ended_by_ucx(self):
        said = "[vm:6230 :0:6230]   uct_iface.h:884  Assertion `comp->count > 0' failed: count=0 status=-80"
        story = begun().tell("agent_died", node="a", pid=7, excused=False, said=said).end()
        self.assertEqual((broken(story), summary(story.events, [])["agents_died"]), ([], [said]))

    def test_an_agent_whose_calls_fail_may_not_come_up_or_be_given_up_by_ucx(self):
        said = "[vm:12440:0:12440]  ucp_worker.c:208  Fatal: failed to set active message handler id 12: Input/output error"
        story = begun().tell("agent_died", node="a", pid=7, excused=False, said="", failing=True, ready=False)
        story.tell("agent_died", node="a", pid=8, excused=False, said=said, failing=True, ready=True)
        self.assertEqual(broken(story.end()), [])

    def test_the_table_has_the_figures(self):
        story = begun().fault("node_lost", ["a"]).launch(2).restore(1, 3).end()
        figures = summary(story.events, [])
        self.assertEqual((figures["faults"], figures["committed"], figures["lost_committed"]), (1, 3, 0))
        self.assertIn("node_lost", table(figures))

    def test_several_campaigns_add_up(self):
        one = summary(begun().fault("node_lost", ["a"]).launch(2).restore(1, 3).end().events, [])
        story = begun().fault("agent_killed").tell("held", launch=1, rank=0, step=3, ms=7.0).launch(2).restore(1, 2).end()
        other = summary(story.events, judge(story.events))
        both = merged([one, other, one])
        self.assertEqual((both["campaigns"], both["faults"], both["committed"], both["held_ms"]), (3, 3, 9, 7.0))
        self.assertEqual(both["faults_by_kind"], {"agent_killed": 1, "node_lost": 2})
        self.assertEqual((both["restored_bytes"]["local"], len(both["steps_lost"])), (12, 6))
        self.assertEqual((both["lost_committed"], len(both["broken"])), (1, 1))
        text = markdown("title", both, [(7, one, "ok", 3), (8, None, "not run", 0)])
        self.assertIn("| node_lost | 2 |", text)
        self.assertIn("| committed and lost | 1 |", text)
        self.assertNotIn("95 %", text)
        self.assertIn("1 of 12 such faults", markdown("title", merged([one] * 36), []))


class Refused(unittest.TestCase):
    def refused(self, promise, story):
        self.assertIn(promise, broken(story))

    def test_wrong_bytes(self):
        self.refused("content", begun().launch(2).restore(1, 3, right=False).end())

    def test_a_trainer_that_found_wrong_bytes(self):
        self.refused("content", begun().tell("trainer_ended", launch=1, rank=0, status=3, said="WRONG params").end())

    def test_a_published_version_with_wrong_bytes(self):
        self.refused("content", begun().tell("checked", name="v9.t1", term=1, step=2, origin=1, wrong="bad").end())

    def test_a_committed_version_lost_after_one_node(self):
        self.refused("lost", begun().fault("node_lost", ["a"]).launch(2).restore(1, 2).end())

    def test_a_committed_version_lost_without_any_loss(self):
        self.refused("lost", begun().fault("agents_killed").launch(2).restore(1, 2).end())

    def test_a_second_node_lost_after_a_new_commit(self):
        story = begun().fault("node_lost", ["a"]).launch(2).restore(1, 3).commit(4).fault("node_lost", ["b"])
        self.refused("lost", story.launch(3).restore(1, 3).end())

    def test_a_published_version_lost(self):
        self.refused("lost", begun().fault("all_nodes_lost", ["a", "b"]).launch(2).restore(1, 1).end())

    def test_a_job_that_begins_afresh(self):
        story = begun().fault("node_lost", ["a"]).launch(2)
        self.refused("lost", story.tell("fresh", launch=2, rank=0, step=0).end())

    def test_an_older_version_than_the_launch_before_restored(self):
        story = Story().launch(1).save(1).save(2).tell("committed", launch=1, rank=0, step=2)
        story.launch(2).restore(1, 2)
        self.refused("monotonic", story.launch(3).restore(1, 1).end())

    def test_ranks_that_restore_different_versions(self):
        self.refused("agreement", begun().launch(2).restore(1, 3, ranks=1).tell(
            "restored", launch=2, rank=1, origin=1, step=2, term=1, right=True, local=1, twin=0, peer=0, storage=0).end())

    def test_a_rank_that_begins_afresh_beside_one_that_restored(self):
        story = begun().launch(2).restore(1, 3, ranks=1)
        self.refused("agreement", story.tell("fresh", launch=2, rank=1, step=0).end())

    def test_a_commit_that_a_rank_never_saved(self):
        self.refused("intent", begun().save(4, ranks=1).tell("committed", launch=1, rank=0, step=4).end())

    def test_a_restored_version_that_a_rank_never_saved(self):
        self.refused("intent", begun().save(4, ranks=1).launch(2).restore(1, 4).end())

    def test_a_published_version_that_nobody_saved(self):
        self.refused("intent", begun().tell("published", launch=1, rank=0, step=9).end())

    def test_a_trainer_held_too_long(self):
        self.refused("held", begun().tell("held", launch=1, rank=0, step=3, ms=19000.0).end())

    def test_no_commits_any_more(self):
        self.refused("liveness", begun().tell("stuck", launch=1, seconds=90))

    def test_a_last_launch_that_fails(self):
        self.refused("liveness", begun().launch(2).restore(1, 3).tell("finished", launch=2, statuses=[0, 2]).tell(
            "gone", left=[]))

    def test_a_history_without_an_end(self):
        self.refused("liveness", begun())

    def test_an_agent_that_dies_of_itself(self):
        self.refused("processes", begun().tell("agent_died", node="a", pid=7, excused=False, said="agent.c:9: Assertion").end())

    def test_an_agent_that_dies_while_its_calls_fail(self):
        self.refused("processes", begun().tell("agent_died", node="a", pid=7, excused=False, said="", failing=True,
                                               ready=True).end())

    def test_an_agent_that_ucx_gives_up_although_no_call_failed(self):
        self.refused("processes", begun().tell("agent_died", node="a", pid=7, excused=False, failing=False, ready=True,
                                               said="[vm:1:0:1]  ucp_worker.c:208  Fatal: bad").end())

    def test_processes_left(self):
        self.refused("processes", begun().launch(2).restore(1, 3).tell("finished", launch=2, statuses=[0, 0]).tell(
            "gone", left=["agent a"]))

    def test_an_agent_that_grows(self):
        story = begun()
        for kib, fds in ((3000, 50), (3000, 50), (300000, 50)):
            story.tell("sample", node="a", pid=7, kib=kib, fds=fds, threads=12)
        self.refused("processes", story.end())

    def test_an_agent_that_leaks_descriptors(self):
        story = begun()
        for fds in (50, 50, 500):
            story.tell("sample", node="a", pid=7, kib=3000, fds=fds, threads=12)
        self.refused("processes", story.end())

    def test_a_report_of_a_sanitizer(self):
        self.refused("processes", begun().tell("sanitizer", path="sanitizer.1", text="heap-use-after-free").end())

    def test_a_file_of_somebody_else_changed(self):
        self.refused("scope", begun().tell("foreign", path="save/x", how="changed or gone").end())


class Numbers(unittest.TestCase):
    def test_what_a_published_tensor_must_hold(self):
        for seed in (0, 1, 0x123456789ABCDEF0, MASK):
            for count in (1, 2, 7, 64):
                wanted = [(seed + i * 0x9E3779B97F4A7C15) & MASK for i in range(count)]
                self.assertEqual(list(array("Q", values(seed, count))), wanted)


class Plans(unittest.TestCase):
    def test_the_seed_alone_makes_the_plan(self):
        self.assertEqual((plan(7, 100), settings(7)), (plan(7, 100), settings(7)))
        self.assertNotEqual(plan(7, 100), plan(8, 100))

    def test_a_longer_plan_begins_as_the_shorter_one(self):
        self.assertEqual(plan(7, 100)[:30], plan(7, 30))

    def test_many_faults_are_campaigns_of_one_seed_each(self):
        self.assertEqual(shares(7, 120), [(7, MOST), (8, MOST), (9, 120 - 2 * MOST)])
        self.assertEqual(shares(7, 20), [(7, 20)])
        self.assertEqual(sum(faults for _, faults in shares(1, 2000)), 2000)

    def test_a_bag_has_every_kind(self):
        self.assertEqual({fault["kind"] for fault in plan(7, sum(KINDS.values()))}, set(KINDS))


if __name__ == "__main__":
    unittest.main()
