//! The synthetic loads of the simulation.

use std::f64::consts::TAU;

use fastrand::Rng;

/// Simulated time, in seconds.
pub(super) const TRACE_SECONDS: f64 = 600.0;

/// Number of VMs on the host.
pub(super) const VMS: usize = 4;

/// The highest arrival rate of a VM, in jobs per second.
const MAX_ARRIVAL_RATE: f64 = 11.0;

/// Service rates of the guest and of the network in jobs per second, unless a trace has others.
const COMPUTE_RATE: f64 = 12.0;
const TRANSMIT_RATE: f64 = 8.0;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Constant rates, equal for all VMs.
    Equal,
    /// Constant rates, one VM with a much higher one than the others.
    Skewed,
    /// The transmission rate of one VM is halved for 150 s.
    LinkStep,
    /// Each VM in turn has a burst of 12 s in every 60 s.
    Bursts,
    /// Transmission times have a high variation.
    HeavySend,
    /// Sinusoidal rates with a period of 300 s; each VM has another phase.
    Diurnal,
    /// All VMs have their bursts at the same time; no budget suffices.
    Correlated,
    /// VMs start and stop.
    Churn,
    /// The model does not fit, measurements are noisy, and some windows are lost.
    WrongModel,
}

impl Trace {
    /// All loads.
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

    /// Returns the name.
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

    /// Returns the arrival rate of a VM in jobs per second.
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

    /// Returns the service rate of the network in jobs per second.
    fn transmit_rate(self, vm: usize, at: f64) -> f64 {
        match self {
            Self::LinkStep if vm == 0 && (200.0..350.0).contains(&at) => TRANSMIT_RATE / 2.0,
            _ => TRANSMIT_RATE,
        }
    }

    /// Returns whether a VM runs.
    pub(super) fn is_present(self, vm: usize, at: f64) -> bool {
        self != Self::Churn || vm == 0 || (at / 50.0 + vm as f64).floor() % 3.0 >= 1.0
    }

    /// Returns the largest relative error of the measured times, and the fraction of the windows that are lost.
    pub(super) fn noise(self) -> (f64, f64) {
        match self {
            Self::WrongModel => (0.3, 0.1),
            _ => (0.0, 0.0),
        }
    }
}

/// The jobs of one VM. They depend on the seed alone, not on what happens to earlier jobs.
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

    /// Returns the time of the next arrival of a non-homogeneous Poisson process, by thinning.
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

/// Draws from a hyperexponential distribution with mean 1 and squared coefficient of variation 8: one of two exponential
/// times, of which the longer is rare.
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
