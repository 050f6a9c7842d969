//! When a running job is looked at next, and whether one of its limits is reached.
//!
//! Pure: the time and the sizes come in, and it must never look at a clock or a file itself.

use std::time::{Duration, Instant};

use super::{Ending, Limits};

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(20);
/// The longest: also how often the owner is asked whether the job is still wanted.
const LONGEST: Duration = Duration::from_secs(1);
/// How fast a job that was quiet until now may start to print, in bytes a second. With it the
/// next look always comes before the limit can be far behind.
const BURST: u64 = 2 << 30;

/// The limits of one running job.
#[derive(Debug)]
pub(super) struct Pace {
    limits: Limits,
    started: Instant,
    size: u64,
    looked: Instant,
    printed: Instant,
    asked: Instant,
    tick: Duration,
}

impl Pace {
    pub(super) fn new(limits: Limits, now: Instant) -> Pace {
        let mut pace = Pace {
            limits,
            started: now,
            size: 0,
            looked: now,
            printed: now,
            asked: now,
            tick: LONGEST,
        };
        pace.tick = pace.next_tick(0);
        pace
    }

    /// How long to wait from `now` on if nothing happens.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        let ends = [
            Some(self.tick.saturating_sub(now - self.looked)),
            Some(self.limits.wall.saturating_sub(now - self.started)),
            self.limits
                .idle
                .map(|idle| idle.saturating_sub(now - self.printed)),
        ];
        ends.into_iter().flatten().min().unwrap_or(LONGEST)
    }

    /// Takes a look: what was printed so far, and whether a limit is reached.
    pub(super) fn look(&mut self, now: Instant, size: u64) -> Option<Ending> {
        let grown = size.saturating_sub(self.size);
        let rate = bytes_a_second(grown, now - self.looked);
        if size != self.size {
            self.printed = now;
        }
        self.size = size;
        self.looked = now;
        self.tick = self.next_tick(rate);
        self.over(now)
    }

    fn over(&self, now: Instant) -> Option<Ending> {
        let Limits {
            wall, idle, output, ..
        } = self.limits;
        if self.size > output {
            return Some(Ending::OutputTooLarge { limit: output });
        }
        if now - self.started >= wall {
            return Some(Ending::TimedOut {
                idle: false,
                after: wall,
            });
        }
        match idle {
            Some(idle) if now - self.printed >= idle => Some(Ending::TimedOut {
                idle: true,
                after: idle,
            }),
            _ => None,
        }
    }

    /// Whether it is time to ask if the job is still wanted; the answer counts as asked.
    pub(super) fn ask(&mut self, now: Instant) -> bool {
        let due = now - self.asked >= LONGEST;
        if due {
            self.asked = now;
        }
        due
    }

    /// Twice as often as the rate asks for, as it may double.
    fn next_tick(&self, rate: u64) -> Duration {
        let rate = rate.saturating_mul(2).max(BURST);
        let left = self.limits.output.saturating_sub(self.size);
        let millis = u128::from(left) * 1000 / u128::from(rate);
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)).clamp(SHORTEST, LONGEST)
    }
}

fn bytes_a_second(bytes: u64, time: Duration) -> u64 {
    let millis = time.as_millis().max(1);
    u64::try_from(u128::from(bytes) * 1000 / millis).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn limits() -> Limits {
        Limits {
            wall: Duration::from_secs(60),
            idle: Some(Duration::from_secs(10)),
            output: 256 * MIB,
            grace: Duration::ZERO,
        }
    }

    /// How far over the limit a job gets that prints nothing for a while and then at this rate.
    fn overshoot(quiet: Duration, rate: u64) -> u64 {
        let start = Instant::now();
        let mut pace = Pace::new(limits(), start);
        let mut now = start;
        loop {
            now += pace.wait(now).max(Duration::from_millis(1));
            let busy = now.saturating_duration_since(start + quiet);
            let size = u64::try_from(u128::from(rate) * busy.as_millis() / 1000).unwrap();
            if let Some(ending) = pace.look(now, size) {
                assert_eq!(ending, Ending::OutputTooLarge { limit: 256 * MIB });
                return size - 256 * MIB;
            }
        }
    }

    #[test]
    fn a_flood_is_seen_close_to_the_limit() {
        for quiet in [0, 330, 5001].map(Duration::from_millis) {
            for rate in [200 * MIB, 1200 * MIB, 2000 * MIB] {
                let over = overshoot(quiet, rate);
                assert!(over < 64 * MIB, "{quiet:?} {rate}: {} MiB", over / MIB);
            }
        }
    }

    #[test]
    fn a_large_limit_is_looked_at_once_a_second() {
        let now = Instant::now();
        let roomy = Limits {
            output: u64::MAX,
            ..limits()
        };
        assert_eq!(Pace::new(roomy, now).wait(now), LONGEST);
    }

    #[test]
    fn silence_ends_it_and_a_word_puts_that_off() {
        let start = Instant::now();
        let mut pace = Pace::new(limits(), start);
        let at = |secs| start + Duration::from_secs(secs);
        assert_eq!(pace.look(at(9), 1), None);
        assert_eq!(pace.look(at(18), 1), None);
        let after = Duration::from_secs(10);
        let silent = Ending::TimedOut { idle: true, after };
        assert_eq!(pace.look(at(19), 1), Some(silent));
    }

    #[test]
    fn the_wait_never_passes_a_deadline() {
        let start = Instant::now();
        let short = Limits {
            wall: Duration::from_millis(5),
            ..limits()
        };
        let mut pace = Pace::new(short, start);
        assert_eq!(pace.wait(start), short.wall);
        let end = start + short.wall;
        let over = Ending::TimedOut {
            idle: false,
            after: short.wall,
        };
        assert_eq!(pace.look(end, 0), Some(over));
    }

    #[test]
    fn the_owner_is_asked_once_a_second() {
        let start = Instant::now();
        let mut pace = Pace::new(limits(), start);
        assert!(!pace.ask(start + Duration::from_millis(999)));
        assert!(pace.ask(start + Duration::from_secs(1)));
        assert!(!pace.ask(start + Duration::from_millis(1999)));
    }
}
