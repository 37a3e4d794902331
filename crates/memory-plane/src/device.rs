//! The VM's side: a vhost-user back-end for QEMU's `vhost-user-fs`.

pub mod requests;
mod ring;
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
use crate::folder::Folder;
use crate::shared::{Shared, add};

/// The queue for what must not wait, and the one for all else.
const QUEUES: usize = 2;

/// Longest queue. QEMU's have 128 entries unless it is told otherwise.
const QUEUE_SIZE: usize = 1024;

/// `VHOST_USER_F_PROTOCOL_FEATURES`.
const PROTOCOL_FEATURES: u64 = 1 << 30;

/// The event that slots returned, behind the queues' and the library's own.
const RETURNED: u16 = 3;
const _: () = assert!(RETURNED as usize > QUEUES);

/// The event that the VM is gone.
const GONE: u16 = RETURNED + 1;

type Chain = DescriptorChain<GuestMemoryLoadGuard<GuestMemoryMmap>>;

/// Why a VM cannot be served any longer.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The library that speaks with QEMU.
    #[error("{0}")]
    Library(vhost_user_backend::Error),
    /// The kernel.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<vhost_user_backend::Error> for DeviceError {
    fn from(error: vhost_user_backend::Error) -> Self {
        Self::Library(error)
    }
}

/// Wait for a QEMU on this socket and serve it until it goes.
///
/// # Errors
/// It said nonsense, or the system is short of something. Another one can be served.
pub fn serve_vm(shared: &Arc<Shared>, listener: &UnixListener) -> Result<(), DeviceError> {
    let memory = Memory::new(GuestMemoryMmap::new());
    let device = Arc::new(Mutex::new(Device::new(shared, memory.clone())?));
    // Closed after the workers have ended, or they would not be told.
    let event =
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
    let mut daemon = VhostUserDaemon::new("space".to_owned(), Arc::clone(&device), memory)?;
    let gone = Gone(&event);
    let returned = shared.ram().returned_event();
    for handler in daemon.get_epoll_handlers() {
        let listen = |descriptor, event| {
            handler.register_listener(descriptor, EventSet::IN, u64::from(event))
        };
        if let Err(error) = listen(event.as_raw_fd(), GONE) {
            // Its workers would be waited for without end.
            std::mem::forget(daemon);
            return Err(error.into());
        }
        listen(returned, RETURNED)?;
    }
    // What the libraries do: accept, converse, map the VM's memory, and have its queues' events.
    // syscalls: accept accept4 recvmsg recvfrom sendmsg read write mmap munmap fstat statx lseek
    // syscalls: epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd2 dup fcntl shutdown
    daemon.start(&mut listener.try_clone()?.into())?;
    tracing::info!("a VM has come");
    let ended = daemon.wait();
    drop(gone);
    drop(daemon);
    shared.note_waiting(0);
    let lost = shared.store().abandon();
    tracing::info!(half_written = lost, "the VM is gone");
    use vhost_user_backend::Error::HandleRequest;
    match ended {
        Err(HandleRequest(error)) if !is_end(&error) => Err(HandleRequest(error).into()),
        Err(HandleRequest(_)) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Tells the library's workers that the VM is gone, for they are waited for when the daemon is dropped.
///
/// The library's own way (`exit_event`) leaves an eventfd open for each QEMU that came.
struct Gone<'a>(&'a OwnedFd);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        // An eventfd of ours, written once, has room.
        let _told = rustix::io::write(self.0, &1_u64.to_ne_bytes());
    }
}

/// Whether that is how a QEMU that ends looks.
fn is_end(error: &VhostUserError) -> bool {
    use VhostUserError::{Disconnected, PartialMessage, SocketBroken};
    matches!(error, Disconnected | PartialMessage | SocketBroken(_))
}

/// One VM's device.
struct Device {
    shared: Arc<Shared>,
    folder: Arc<Folder>,
    server: Server<Arc<Folder>>,
    memory: Memory,
    event_idx: bool,
    /// Writes that found no slots, in the order they came: their chains are not given back.
    waiting: VecDeque<(usize, Chain)>,
    /// Where each queue was after the last work on it.
    places: [u16; QUEUES],
}

impl Device {
    fn new(shared: &Arc<Shared>, memory: Memory) -> io::Result<Self> {
        let folder = Arc::new(Folder::new(Arc::clone(shared)));
        Ok(Self {
            shared: Arc::clone(shared),
            server: Server::new(Arc::clone(&folder)),
            folder,
            memory,
            event_idx: false,
            waiting: VecDeque::new(),
            places: [0; QUEUES],
        })
    }

    /// Carry out what the guest has put into a queue.
    fn work(&mut self, queue: usize, vring: &Ring) {
        self.forget_after_reset(queue, vring);
        loop {
            // Errors here are the guest's: its queue lies outside its memory.
            let _none = vring.disable_notification();
            self.work_once(queue, vring);
            if !matches!(vring.enable_notification(), Ok(true)) {
                break;
            }
        }
        if let Some(place) = self.places.get_mut(queue) {
            *place = vring.queue_next_avail();
        }
    }

    fn work_once(&mut self, queue: usize, vring: &Ring) {
        let memory = self.memory.memory();
        // A driver cannot have more chains outstanding than its queue has entries (virtio 1.3, 2.7).
        // One that says so all the same is served when some have come back.
        while self.outstanding(queue).count() < usize::from(queue_size(vring)) {
            let next = vring
                .get_mut()
                .get_queue_mut()
                .pop_descriptor_chain(memory.clone());
            let Some(chain) = next else { break };
            if self
                .outstanding(queue)
                .any(|head| head == chain.head_index())
            {
                tracing::debug!("the guest offers a chain again that it did not get back");
                add(&self.shared.counts.nonsense);
                continue;
            }
            match self.answer(&chain) {
                Some(written) => give_back(vring, &chain, written),
                None => {
                    add(&self.shared.counts.waited);
                    self.waiting.push_back((queue, chain));
                }
            }
        }
        self.note_waiting();
    }

    /// Try those again that wait, as far as there are slots for them.
    fn go_on(&mut self, vrings: &[Ring]) {
        for (queue, vring) in vrings.iter().enumerate() {
            self.forget_after_reset(queue, vring);
        }
        while let Some((queue, chain)) = self.waiting.pop_front() {
            let Some(vring) = vrings.get(queue).filter(|vring| is_ready(vring)) else {
                self.waiting.push_front((queue, chain));
                break;
            };
            match self.answer(&chain) {
                Some(written) => give_back(vring, &chain, written),
                None => {
                    self.waiting.push_front((queue, chain));
                    break;
                }
            }
        }
        self.note_waiting();
    }

    /// A queue that is not where we left it belongs to a guest that has begun anew: what its
    /// predecessor waits for is nobody's any more.
    fn forget_after_reset(&mut self, queue: usize, vring: &Ring) {
        if self.places.get(queue) != Some(&vring.queue_next_avail()) && is_ready(vring) {
            self.waiting.retain(|(waiting, _)| *waiting != queue);
        }
    }

    /// The heads of a queue's chains that wait.
    fn outstanding(&self, queue: usize) -> impl Iterator<Item = u16> {
        let of_queue = move |(waiting, chain): &(usize, Chain)| {
            (*waiting == queue).then(|| chain.head_index())
        };
        self.waiting.iter().filter_map(of_queue)
    }

    fn note_waiting(&self) {
        self.shared.note_waiting(self.waiting.len() as u64);
    }

    /// Carry out a request; none, if it is to be tried again. Returns how many bytes were written.
    fn answer(&self, chain: &Chain) -> Option<u32> {
        let memory = chain.memory();
        let reader = Reader::from_descriptor_chain(memory, chain.clone());
        let writer = VirtioFsWriter::new(memory, chain.clone());
        let (Ok(reader), Ok(writer)) = (reader, writer) else {
            add(&self.shared.counts.nonsense);
            return Some(0);
        };
        let done = self
            .server
            .handle_message(reader, writer.into(), None, None);
        if self.folder.take_full() {
            return None;
        }
        let written = done.unwrap_or_else(|error| {
            tracing::debug!("a request that makes no sense: {error}");
            add(&self.shared.counts.nonsense);
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

fn give_back(vring: &Ring, chain: &Chain, written: u32) {
    if let Err(error) = vring.add_used(chain.head_index(), written) {
        tracing::debug!("the guest's queue: {error}");
        return;
    }
    if vring.needs_notification().unwrap_or(true) {
        if let Err(error) = vring.signal_used_queue() {
            tracing::debug!("the guest cannot be called: {error}");
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
        // See `Gone`.
        None
    }

    fn handle_event(
        &mut self,
        event: u16,
        _: EventSet,
        vrings: &[Ring],
        _: usize,
    ) -> io::Result<()> {
        if event == GONE {
            // An error is what ends a worker that has no exit event.
            return Err(io::ErrorKind::ConnectionAborted.into());
        } else if event == RETURNED {
            self.shared.ram().take_returned();
            self.go_on(vrings);
        } else if let Some(vring) = vrings.get(usize::from(event)) {
            self.work(usize::from(event), vring);
        }
        Ok(())
    }
}
