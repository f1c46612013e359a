"""Rounds of local steps through deaths and joins: 10,000 jobs, simulated without a network."""

import random
import unittest
from fractions import Fraction

from gradwire import Error
from gradwire.local.rounds import Act, Rounds, Standing, settle


class Rank:
    """One that trains: its weight is `common` minus what it learned since the last round."""

    def __init__(self):
        self.rounds, self.common, self.learned = Rounds(), Fraction(0), 0
        # What rounds that it took over had of it.
        self.counted = 0
        self.fresh = True

    def train(self, chance):
        self.learned += chance.randrange(1, 100)

    @property
    def delta(self):
        return self.learned - self.counted

    def take_over(self):
        sent, mean = self.rounds.take_over()
        self.common -= mean
        self.counted += sent[id(self)]
        return sent, mean


class Job:
    """Ranks, and what an observer of all of them knows."""

    def __init__(self, chance):
        self.chance, self.ranks = chance, [Rank() for _ in range(chance.randrange(2, 5))]
        # The means of rounds that a rank took over, by number; a rank may die right behind that.
        self.means = {}
        self.acts = set()

    def round(self, deadly):
        """Exchanges once. With `deadly`, a rank dies in one of the phases. Returns whether nobody did."""
        for rank in self.ranks:
            rank.train(self.chance)
        sent = {id(rank): rank.delta for rank in self.ranks}
        mean = Fraction(sum(sent.values()), len(sent))
        dead = self.chance.sample(self.ranks, self.chance.randrange(1, len(self.ranks))) if deadly else []
        phase = self.chance.randrange(4) if dead else 4
        # Phase 0: some never sent. Nobody can have the mean without all of them.
        holding = self.ranks if phase > 1 else [] if phase == 0 else self.chance.sample(self.ranks, self.chance.randrange(len(self.ranks)))
        for rank in holding:
            rank.rounds.hold((sent, mean))
        # Phases 2 and 3: all hold it, and some hear that.
        heard = self.ranks if phase == 4 else self.chance.sample(self.ranks, self.chance.randrange(len(self.ranks))) if phase > 1 else []
        for rank in heard:
            rank.take_over()
        if set(heard) - set(dead):
            self.means[len(self.means)] = mean
        # Phase 3: those who heard train on, and begin another round, before they see the death.
        for rank in heard if phase == 3 else ():
            rank.train(self.chance)
        self.ranks = [rank for rank in self.ranks if rank not in dead]
        return not dead

    def meet(self):
        """All that are left, and some that are new, go on together."""
        for rank in self.ranks:
            rank.fresh = False
        self.ranks += [Rank() for _ in range(self.chance.randrange(2) if len(self.ranks) > 1 else self.chance.randrange(1, 3))]
        self.chance.shuffle(self.ranks)
        acts, source = settle([None if rank.fresh else rank.rounds.standing() for rank in self.ranks])
        for rank, act in zip(self.ranks, acts):
            self.acts.add(act)
            if act is Act.TAKE_OVER:
                rank.take_over()
            else:
                rank.rounds.drop()
        for rank, act in zip(self.ranks, acts):
            if act is Act.COPY:
                rank.common, rank.rounds.number = self.ranks[source].common, self.ranks[source].rounds.number
                rank.fresh = False


class Simulated(unittest.TestCase):
    def test_ranks_that_are_left_agree_and_lose_nothing(self):
        acts, deaths = set(), 0
        for seed in range(10_000):
            chance = random.Random(seed)
            job = Job(chance)
            job.meet()
            for _ in range(chance.randrange(1, 8)):
                if not job.round(deadly=chance.randrange(3) == 0):
                    deaths += 1
                    job.meet()
                    self.check(seed, job)
                elif chance.randrange(4) == 0:
                    # Ranks join without a death.
                    job.meet()
                self.check(seed, job)
            acts |= job.acts
        self.assertEqual(acts, set(Act))
        self.assertGreater(deaths, 10_000)

    def check(self, seed, job):
        common = -sum(job.means.values())
        for rank in job.ranks:
            self.assertEqual((rank.common, rank.rounds.number, rank.rounds.held), (common, len(job.means), None), f"seed {seed}")
            self.assertEqual(rank.counted + rank.delta, rank.learned, f"seed {seed}")


class Settled(unittest.TestCase):
    def test_a_start_takes_rank_0s_weights(self):
        self.assertEqual(settle([None, None]), ([Act.GO_ON, Act.COPY], 0))

    def test_a_rank_that_missed_rounds_is_told_so(self):
        with self.assertRaisesRegex(Error, "rank 1 took over 3 rounds, and another rank 5: .*make a new LocalSteps there"):
            settle([Standing(5, False), Standing(3, True)])
        with self.assertRaisesRegex(Error, "rank 0 took over 4 rounds"):
            settle([Standing(4, False), Standing(5, False)])


if __name__ == "__main__":
    unittest.main()
