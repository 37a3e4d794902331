//! The loads that the controller is tried on.

use std::f64::consts::TAU;

use fastrand::Rng;

/// Simulated seconds.
pub(super) const TRACE_SECONDS: f64 = 600.0;

/// VMs of a host.
pub(super) const VMS: usize = 4;

/// The most jobs a second that arrive at a VM.
const MAX_ARRIVAL_RATE: f64 = 11.0;

/// Jobs a second that a guest computes and the network takes, unless a trace says otherwise.
const COMPUTE_RATE: f64 = 12.0;
const TRANSMIT_RATE: f64 = 8.0;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Steady, and the same for all.
    Equal,
    /// Steady, one VM with much more than the others.
    Skewed,
    /// One VM's link halves for 150 s.
    LinkStep,
    /// Each VM in turn works for 12 of 60 s.
    Bursts,
    /// The times of transmission vary much.
    HeavySend,
    /// A slow wave, each VM at another place of it.
    Diurnal,
    /// All VMs burst together, and no budget would do.
    Correlated,
    /// VMs come and go.
    Churn,
    /// The model is wrong, what it is told is noisy, and some of it is lost.
    WrongModel,
}

impl Trace {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Equal,
        Self::Skewed,
        Self::LinkStep,
        Self::Bursts,
        Self::HeavySend,
        Self::Diurnal,
        Self::Correlated,
        Self::Churn,
        Self::WrongModel,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Skewed => "skewed",
            Self::LinkStep => "link step",
            Self::Bursts => "bursts",
            Self::HeavySend => "heavy send",
            Self::Diurnal => "diurnal",
            Self::Correlated => "correlated",
            Self::Churn => "churn",
            Self::WrongModel => "wrong model",
        }
    }

    /// Jobs a second that arrive at a VM.
    fn arrival_rate(self, vm: usize, at: f64) -> f64 {
        let phase_of_vm = vm as f64 / VMS as f64;
        let skewed = [6.8, 4.0, 2.0, 1.0].get(vm).copied().unwrap_or(1.0);
        let bursts = |phase: f64, most| match (at / 60.0 + phase).fract() < 0.2 {
            true => most,
            false => 0.5,
        };
        match self {
            Self::Equal => 5.6,
            Self::Skewed | Self::HeavySend | Self::WrongModel => skewed,
            Self::LinkStep => 3.2,
            Self::Bursts => bursts(phase_of_vm, 9.0),
            Self::Correlated => bursts(0.0, MAX_ARRIVAL_RATE),
            Self::Diurnal => 3.8 + 3.4 * (TAU * (at / 300.0 + phase_of_vm)).sin(),
            Self::Churn => 5.0,
        }
    }

    /// Jobs a second that the network takes.
    fn transmit_rate(self, vm: usize, at: f64) -> f64 {
        match self {
            Self::LinkStep if vm == 0 && (200.0..350.0).contains(&at) => TRANSMIT_RATE / 2.0,
            _ => TRANSMIT_RATE,
        }
    }

    /// Whether a VM is there.
    pub(super) fn is_present(self, vm: usize, at: f64) -> bool {
        self != Self::Churn || vm == 0 || (at / 50.0 + vm as f64).floor() % 3.0 >= 1.0
    }

    /// By how much what is told is off, at most, and how often it is lost.
    pub(super) fn noise(self) -> (f64, f64) {
        match self {
            Self::WrongModel => (0.3, 0.1),
            _ => (0.0, 0.0),
        }
    }
}

/// The jobs of one VM. The same seed brings the same jobs, whatever becomes of them.
#[derive(Debug)]
pub(super) struct Jobs {
    trace: Trace,
    vm: usize,
    arrival_rng: Rng,
    compute_rng: Rng,
    transmit_rng: Rng,
}

impl Jobs {
    pub(super) fn new(trace: Trace, vm: usize, seed: u64) -> Self {
        let mut seeds = Rng::with_seed(seed.wrapping_mul(1009).wrapping_add(vm as u64));
        Self {
            trace,
            vm,
            arrival_rng: seeds.fork(),
            compute_rng: seeds.fork(),
            transmit_rng: seeds.fork(),
        }
    }

    /// When the next job comes: a Poisson process whose rate changes, by thinning.
    pub(super) fn next_arrival(&mut self, mut now: f64) -> f64 {
        loop {
            now += exponential(&mut self.arrival_rng) / MAX_ARRIVAL_RATE;
            let threshold = self.arrival_rng.f64() * MAX_ARRIVAL_RATE;
            if now > TRACE_SECONDS || threshold < self.trace.arrival_rate(self.vm, now) {
                return now;
            }
        }
    }

    pub(super) fn compute_time(&mut self, _now: f64) -> f64 {
        exponential(&mut self.compute_rng) / COMPUTE_RATE
    }

    pub(super) fn transmit_time(&mut self, now: f64) -> f64 {
        let unit = match self.trace {
            Trace::HeavySend | Trace::WrongModel => hyperexponential(&mut self.transmit_rng),
            _ => exponential(&mut self.transmit_rng),
        };
        unit / self.trace.transmit_rate(self.vm, now)
    }
}

fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

/// Mean 1 and squared coefficient of variation 8: two exponential times, the rare one long.
fn hyperexponential(rng: &mut Rng) -> f64 {
    const SCV: f64 = 8.0;
    let rare = 0.5 * (1.0 - ((SCV - 1.0) / (SCV + 1.0)).sqrt());
    let share = if rng.f64() < rare { rare } else { 1.0 - rare };
    exponential(rng) / (2.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hyperexponential_times_have_the_given_mean_and_variation() {
        let mut rng = Rng::with_seed(1);
        let values: Vec<f64> = (0..400_000).map(|_| hyperexponential(&mut rng)).collect();
        let count = 400_000.0;
        let mean = values.iter().sum::<f64>() / count;
        let squares = values.iter().map(|value| value * value).sum::<f64>() / count;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
        assert!((squares / (mean * mean) - 9.0).abs() < 0.6, "{squares}");
    }

    #[test]
    fn arrivals_have_the_rate_of_the_trace() {
        let mut jobs = Jobs::new(Trace::Equal, 0, 3);
        let (mut now, mut count) = (0.0, 0.0);
        while now < TRACE_SECONDS {
            now = jobs.next_arrival(now);
            count += 1.0;
        }
        assert!((count / TRACE_SECONDS - 5.6).abs() < 0.4, "{count}");
    }
}
