//! Gets a thread out of a system call that a front-end has made to block.
//!
//! A front-end shares its call descriptors with us, flags included: it can make one block and fill
//! it, and the write that calls its guest then waits for as long as the front-end likes. No kind of
//! write is safe from that (`RWF_NOWAIT` is not for event descriptors). So a thread that calls has
//! an alarm, which interrupts it regularly while it works. A write that need not wait takes no
//! notice. One that waits fails with `EINTR`, which is also the proof.

use std::io;
use std::mem::zeroed;
use std::ptr;
use std::time::Duration;

/// Its default action ends the process: hence [`install`].
const SIGNAL: libc::c_int = libc::SIGALRM;

/// Have the signal interrupt and do nothing else, once for the process.
fn install() -> io::Result<()> {
    // SAFETY: `sigaction` is plain data for which all zeroes is a valid value. Without SA_RESTART
    // a waiting call fails with EINTR.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = on_alarm as *const () as usize;
    action.sa_flags = libc::SA_ONSTACK;
    // SAFETY: `on_alarm` has the signature asked for, and does nothing.
    match unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_alarm(_signal: libc::c_int) {}

/// The alarm of the thread that made it.
#[derive(Debug)]
pub struct Alarm {
    timer: libc::timer_t,
    period: Duration,
    set: bool,
}

impl Alarm {
    /// An alarm for this thread, to be heard every `period` while it is set. It is not set yet.
    ///
    /// # Errors
    /// The kernel refuses: the user has too many signals pending.
    pub fn new(period: Duration) -> io::Result<Self> {
        install()?;
        // SAFETY: `sigevent` is plain data for which all zeroes is a valid value.
        let mut event: libc::sigevent = unsafe { zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut timer = ptr::null_mut();
        // SAFETY: both places are valid. The signal is handled, see above, and goes to a thread of
        // ours.
        let made =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        match made {
            0 => Ok(Self {
                timer,
                period,
                set: false,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// From now on the thread may call.
    #[inline]
    pub fn set(&mut self) {
        if !self.set {
            self.arm(self.period);
            self.set = true;
        }
    }

    /// The thread does not call before the alarm is set again.
    #[inline]
    pub fn unset(&mut self) {
        if self.set {
            self.arm(Duration::ZERO);
            self.set = false;
        }
    }

    #[cold]
    fn arm(&self, period: Duration) {
        let period = libc::timespec {
            tv_sec: 0,
            tv_nsec: period.subsec_nanos().into(),
        };
        let times = libc::itimerspec {
            it_interval: period,
            it_value: period,
        };
        // syscalls: timer_settime
        // SAFETY: the timer was made by `new`; the times are read only.
        let armed =
            unsafe { libc::timer_settime(self.timer, 0, &raw const times, ptr::null_mut()) };
        debug_assert_eq!(armed, 0, "a timer of ours, times in range");
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // syscalls: timer_delete
        // SAFETY: the timer was made by `new` and is not used after this.
        unsafe { libc::timer_delete(self.timer) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::{Errno, write};

    use super::*;

    #[test]
    fn a_write_that_waits_is_interrupted_and_one_that_need_not_wait_is_not() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let mut alarm = Alarm::new(Duration::from_millis(1)).unwrap();
        alarm.set();
        let full = u64::MAX - 1;
        assert_eq!(write(&event, &full.to_ne_bytes()), Ok(8));
        for _ in 0..3 {
            assert_eq!(write(&event, &1_u64.to_ne_bytes()), Err(Errno::INTR));
        }
        // It goes on until it is unset, and can be set again.
        alarm.unset();
        alarm.set();
        assert_eq!(write(&event, &1_u64.to_ne_bytes()), Err(Errno::INTR));
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        for _ in 0..10_000 {
            assert_eq!(write(&event, &1_u64.to_ne_bytes()), Ok(8));
        }
    }
}
