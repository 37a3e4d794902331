//! Interrupts a thread in a system call that a front-end has made to block.
//!
//! A front-end shares its call descriptors with this process, including their flags. It can clear
//! `O_NONBLOCK` and fill the counter; the write that calls its guest then blocks for as long as the
//! front-end likes. No form of write avoids this (eventfds do not support `RWF_NOWAIT`). So a thread that
//! calls guests has a periodic timer, which signals the thread while it works. The signal does not affect
//! a write that does not block. A write that blocks fails with `EINTR`, which is also the proof of the
//! front-end's fault.

use std::io;
use std::mem::zeroed;
use std::ptr;
use std::time::Duration;

/// The default action of this signal ends the process, so [`install`] sets a handler.
const SIGNAL: libc::c_int = libc::SIGALRM;

/// Installs a handler that does nothing, so that the signal only interrupts. The handler applies to the
/// whole process.
fn install() -> io::Result<()> {
    // SAFETY: `sigaction` is plain data for which all zeroes is a valid value. Without SA_RESTART
    // a waiting call fails with EINTR.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = on_alarm as *const () as usize;
    action.sa_flags = libc::SA_ONSTACK;
    // SAFETY: `on_alarm` has the required signature, and does nothing.
    match unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_alarm(_signal: libc::c_int) {}

/// The periodic timer of the thread that created it.
#[derive(Debug)]
pub struct Alarm {
    timer: libc::timer_t,
    period: Duration,
    set: bool,
}

impl Alarm {
    /// Creates a timer for this thread, which signals every `period` while it is set. It is not set
    /// yet.
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
        // SAFETY: both pointers are valid. The signal has a handler, see above, and goes to a thread
        // of this process.
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

    /// Starts the timer. The thread may call guests from now on.
    #[inline]
    pub fn set(&mut self) {
        if !self.set {
            self.arm(self.period);
            self.set = true;
        }
    }

    /// Stops the timer. The thread must not call guests until it sets the timer again.
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
        // SAFETY: `new` created the timer; the kernel only reads the times.
        let armed =
            unsafe { libc::timer_settime(self.timer, 0, &raw const times, ptr::null_mut()) };
        debug_assert_eq!(armed, 0, "the timer exists and the times are in range");
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // syscalls: timer_delete
        // SAFETY: `new` created the timer, and nothing uses it after this.
        unsafe { libc::timer_delete(self.timer) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::{Errno, write};

    use super::*;

    #[test]
    fn the_alarm_interrupts_a_write_that_blocks_and_no_other() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let mut alarm = Alarm::new(Duration::from_millis(1)).unwrap();
        alarm.set();
        let full = u64::MAX - 1;
        assert_eq!(write(&event, &full.to_ne_bytes()), Ok(8));
        for _ in 0..3 {
            assert_eq!(write(&event, &1_u64.to_ne_bytes()), Err(Errno::INTR));
        }
        // The timer can be stopped and set again.
        alarm.unset();
        alarm.set();
        assert_eq!(write(&event, &1_u64.to_ne_bytes()), Err(Errno::INTR));
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        for _ in 0..10_000 {
            assert_eq!(write(&event, &1_u64.to_ne_bytes()), Ok(8));
        }
    }
}
