//! The VM's side: a vhost-user back-end for QEMU's `vhost-user-fs-pci` device.
//!
//! One thread of the library `vhost-user-backend` handles kicks of the virtqueues and the event of free slots. A request
//! that finds the space full stays in the device: its descriptor chain is not returned, so the guest's program waits. When
//! slots become free, the device retries the waiting requests in their order.

mod ring;
pub mod test_driver;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};

use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::transport::{Reader, VirtioFsWriter};
use rust_vmm_vhost::vhost_user::{Error as VhostUserError, VhostUserProtocolFeatures};
use rustix::event::{EventfdFlags, eventfd};
use vhost_user_backend::{VhostUserBackendMut, VhostUserDaemon, VringT};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_queue::{DescriptorChain, QueueT};
use vm_memory::{GuestAddressSpace, GuestMemoryLoadGuard, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{EventConsumer, EventNotifier};

use self::ring::{Memory, Ring};
use crate::file_system::SpaceFileSystem;
use crate::space_state::{SpaceState, increment};

/// The high-priority queue and the request queue (virtio 1.3, 5.11.2).
const QUEUES: usize = 2;

/// Largest queue size. QEMU's default is 128 entries.
const QUEUE_SIZE: usize = 1024;

/// `VHOST_USER_F_PROTOCOL_FEATURES`.
const PROTOCOL_FEATURES: u64 = 1 << 30;

/// The event of free slots. Lower numbers are the events of the queues and of the library.
const SLOT_FREE_EVENT: u16 = 3;
const _: () = assert!(SLOT_FREE_EVENT as usize > QUEUES);

/// The event that ends the worker after the VM disconnected.
const EXIT_EVENT: u16 = SLOT_FREE_EVENT + 1;

type Chain = DescriptorChain<GuestMemoryLoadGuard<GuestMemoryMmap>>;

/// Why the connection to a VM ended.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// An error of the library that speaks vhost-user with QEMU.
    #[error("{0}")]
    Library(vhost_user_backend::Error),
    /// An error of the kernel.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<vhost_user_backend::Error> for DeviceError {
    fn from(error: vhost_user_backend::Error) -> Self {
        Self::Library(error)
    }
}

/// Waits for a QEMU on this socket and serves it until it disconnects.
///
/// # Errors
/// Returns an error if QEMU violated the protocol or the system lacks a resource. The caller may serve the next QEMU.
pub fn serve_vm(state: &Arc<SpaceState>, listener: &UnixListener) -> Result<(), DeviceError> {
    let memory = Memory::new(GuestMemoryMmap::new());
    let device = Arc::new(Mutex::new(Device::new(state, memory.clone())?));
    // This descriptor must outlive the workers, because it ends them.
    let event =
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
    let mut daemon = VhostUserDaemon::new("space".to_owned(), Arc::clone(&device), memory)?;
    let exit = WorkerExit(&event);
    let slot_free = state.slot_file().slot_free_event();
    for handler in daemon.get_epoll_handlers() {
        let register = |descriptor, event| {
            handler.register_listener(descriptor, EventSet::IN, u64::from(event))
        };
        if let Err(error) = register(event.as_raw_fd(), EXIT_EVENT) {
            // Without the exit event, dropping the daemon would wait for its workers without end.
            std::mem::forget(daemon);
            return Err(error.into());
        }
        register(slot_free, SLOT_FREE_EVENT)?;
    }
    // System calls of the libraries: accept, exchange messages, map the VM's memory, and wait for events of its queues.
    // syscalls: accept accept4 recvmsg recvfrom sendmsg read write mmap munmap fstat statx lseek
    // syscalls: epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd2 dup fcntl shutdown
    daemon.start(&mut listener.try_clone()?.into())?;
    tracing::info!("a VM connected");
    let ended = daemon.wait();
    drop(exit);
    drop(daemon);
    state.note_waiting(0);
    let removed = state.store().end_session();
    tracing::info!(half_written = removed, "the VM disconnected");
    use vhost_user_backend::Error::HandleRequest;
    match ended {
        Err(HandleRequest(error)) if !is_disconnect(&error) => Err(HandleRequest(error).into()),
        Err(HandleRequest(_)) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Ends the library's workers when it is dropped, because dropping the daemon waits for them.
///
/// The library's own mechanism (`exit_event`) leaks an eventfd for each QEMU that connects.
struct WorkerExit<'a>(&'a OwnedFd);

impl Drop for WorkerExit<'_> {
    fn drop(&mut self) {
        // The eventfd is written once only, so its counter cannot be full.
        let _result = rustix::io::write(self.0, &1_u64.to_ne_bytes());
    }
}

/// Returns whether the error means that QEMU disconnected.
fn is_disconnect(error: &VhostUserError) -> bool {
    use VhostUserError::{Disconnected, PartialMessage, SocketBroken};
    matches!(error, Disconnected | PartialMessage | SocketBroken(_))
}

/// The file system device of one VM.
struct Device {
    state: Arc<SpaceState>,
    file_system: Arc<SpaceFileSystem>,
    server: Server<Arc<SpaceFileSystem>>,
    memory: Memory,
    event_idx: bool,
    /// Writes that found no free slots, in order of arrival, with their queues. Their chains are not returned to the driver.
    waiting: VecDeque<(usize, Chain)>,
    /// The next available index of each queue after its last processing.
    next_avail: [u16; QUEUES],
}

impl Device {
    fn new(state: &Arc<SpaceState>, memory: Memory) -> io::Result<Self> {
        let file_system = Arc::new(SpaceFileSystem::new(Arc::clone(state)));
        Ok(Self {
            state: Arc::clone(state),
            server: Server::new(Arc::clone(&file_system)),
            file_system,
            memory,
            event_idx: false,
            waiting: VecDeque::new(),
            next_avail: [0; QUEUES],
        })
    }

    /// Processes all available requests of a queue.
    fn process_queue(&mut self, queue: usize, vring: &Ring) {
        self.drop_waiting_after_reset(queue, vring);
        loop {
            // An error here means that the guest placed its queue outside its memory.
            let _none = vring.disable_notification();
            self.process_available(queue, vring);
            if !matches!(vring.enable_notification(), Ok(true)) {
                break;
            }
        }
        if let Some(next) = self.next_avail.get_mut(queue) {
            *next = vring.queue_next_avail();
        }
    }

    fn process_available(&mut self, queue: usize, vring: &Ring) {
        let memory = self.memory.memory();
        // A driver cannot have more chains outstanding than its queue has entries (virtio 1.3, 2.7).
        // If a driver offers more, the device processes them after it has returned some.
        while self.waiting_heads(queue).count() < usize::from(queue_size(vring)) {
            let next = vring
                .get_mut()
                .get_queue_mut()
                .pop_descriptor_chain(memory.clone());
            let Some(chain) = next else { break };
            if self
                .waiting_heads(queue)
                .any(|head| head == chain.head_index())
            {
                tracing::debug!("the guest offers a chain again that the device has not returned");
                increment(&self.state.counters.invalid_requests);
                continue;
            }
            match self.handle_request(&chain) {
                Some(written) => return_chain(vring, &chain, written),
                None => {
                    increment(&self.state.counters.waited);
                    self.waiting.push_back((queue, chain));
                }
            }
        }
        self.note_waiting();
    }

    /// Retries the waiting requests in order, until one finds no free slots.
    fn retry_waiting(&mut self, vrings: &[Ring]) {
        for (queue, vring) in vrings.iter().enumerate() {
            self.drop_waiting_after_reset(queue, vring);
        }
        while let Some((queue, chain)) = self.waiting.pop_front() {
            let Some(vring) = vrings.get(queue).filter(|vring| is_ready(vring)) else {
                self.waiting.push_front((queue, chain));
                break;
            };
            match self.handle_request(&chain) {
                Some(written) => return_chain(vring, &chain, written),
                None => {
                    self.waiting.push_front((queue, chain));
                    break;
                }
            }
        }
        self.note_waiting();
    }

    /// Drops the waiting requests of a queue that was reset. A queue whose next available index changed since its last
    /// processing belongs to a restarted guest, which does not expect answers to the requests of its predecessor.
    fn drop_waiting_after_reset(&mut self, queue: usize, vring: &Ring) {
        if self.next_avail.get(queue) != Some(&vring.queue_next_avail()) && is_ready(vring) {
            self.waiting.retain(|(waiting, _)| *waiting != queue);
        }
    }

    /// Returns the head indices of a queue's waiting chains.
    fn waiting_heads(&self, queue: usize) -> impl Iterator<Item = u16> {
        let of_queue = move |(waiting, chain): &(usize, Chain)| {
            (*waiting == queue).then(|| chain.head_index())
        };
        self.waiting.iter().filter_map(of_queue)
    }

    fn note_waiting(&self) {
        self.state.note_waiting(self.waiting.len() as u64);
    }

    /// Handles a request and returns the number of bytes written to the chain; `None` if the request must be retried.
    fn handle_request(&self, chain: &Chain) -> Option<u32> {
        let memory = chain.memory();
        let reader = Reader::from_descriptor_chain(memory, chain.clone());
        let writer = VirtioFsWriter::new(memory, chain.clone());
        let (Ok(reader), Ok(writer)) = (reader, writer) else {
            increment(&self.state.counters.invalid_requests);
            return Some(0);
        };
        let done = self
            .server
            .handle_message(reader, writer.into(), None, None);
        if self.file_system.take_found_full() {
            return None;
        }
        let written = done.unwrap_or_else(|error| {
            tracing::debug!("the guest sent a malformed request: {error}");
            increment(&self.state.counters.invalid_requests);
            0
        });
        Some(u32::try_from(written).unwrap_or(u32::MAX))
    }
}

fn queue_size(vring: &Ring) -> u16 {
    vring.get_ref().get_queue().size()
}

fn is_ready(vring: &Ring) -> bool {
    vring.get_ref().get_queue().ready()
}

fn return_chain(vring: &Ring, chain: &Chain, written: u32) {
    if let Err(error) = vring.add_used(chain.head_index(), written) {
        tracing::debug!("cannot read the guest's queue: {error}");
        return;
    }
    if vring.needs_notification().unwrap_or(true) {
        if let Err(error) = vring.signal_used_queue() {
            tracing::debug!("cannot interrupt the guest: {error}");
        }
    }
}

impl VhostUserBackendMut for Device {
    type Bitmap = ();
    type Vring = Ring;

    fn num_queues(&self) -> usize {
        QUEUES
    }

    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE
    }

    fn features(&self) -> u64 {
        1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | 1 << VIRTIO_RING_F_EVENT_IDX
            | PROTOCOL_FEATURES
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        use VhostUserProtocolFeatures as Features;
        Features::MQ | Features::REPLY_ACK | Features::CONFIGURE_MEM_SLOTS
    }

    fn set_event_idx(&mut self, enabled: bool) {
        self.event_idx = enabled;
    }

    fn update_memory(&mut self, memory: Memory) -> io::Result<()> {
        self.memory = memory;
        Ok(())
    }

    fn exit_event(&self, _thread: usize) -> Option<(EventConsumer, EventNotifier)> {
        // See `WorkerExit`.
        None
    }

    fn handle_event(
        &mut self,
        event: u16,
        _: EventSet,
        vrings: &[Ring],
        _: usize,
    ) -> io::Result<()> {
        if event == EXIT_EVENT {
            // A worker without an exit event ends when its handler returns an error.
            return Err(io::ErrorKind::ConnectionAborted.into());
        } else if event == SLOT_FREE_EVENT {
            self.state.slot_file().clear_slot_free();
            self.retry_waiting(vrings);
        } else if let Some(vring) = vrings.get(usize::from(event)) {
            self.process_queue(usize::from(event), vring);
        }
        Ok(())
    }
}
