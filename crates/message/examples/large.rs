//! A large message between two programs of a board, in memory that both can write, so that each
//! copies a part of it. The programs are threads here; they could be processes.

use std::error::Error;

use message::{Address, Board, Code, Endpoint, Options, Pattern};

const LENGTH: usize = 4 << 20;

/// The match value of the message.
const LARGE: u64 = 1;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

fn sender(board: &Board, receiver: Address) -> Outcome {
    let mut endpoint = Endpoint::open(board, &Options::default())?;
    let peer = endpoint.connect(receiver, 0, None)?;
    let mut memory = endpoint
        .allocate_for(peer, LENGTH)
        .ok_or("the heap is full")?;
    memory.put(0, &vec![7; LENGTH]);
    let request = endpoint.isend(peer, LARGE, memory)?;
    // The completion returns the memory.
    let sent = endpoint.wait(request, None)?.ok_or("woken")?;
    match sent.status.code {
        Code::Success => Ok(()),
        code => Err(format!("not sent: {code:?}").into()),
    }
}

fn receiver(endpoint: &mut Endpoint) -> Outcome {
    // The sender and the length are needed before memory for the message can be allocated.
    let offered = loop {
        if let Some(status) = endpoint.iprobe(Pattern::exactly(LARGE)) {
            break status;
        }
    };
    let peer = offered.peer.ok_or("a message has a sender")?;
    let length = usize::try_from(offered.length)?;
    let memory = endpoint
        .allocate_for(peer, length)
        .ok_or("the heap is full")?;
    let request = endpoint.irecv(Pattern::exactly(LARGE), memory)?;
    let got = endpoint.wait(request, None)?.ok_or("woken")?;
    let mut bytes = vec![0; length];
    got.memory.get(0, &mut bytes);
    let right = bytes.iter().all(|byte| *byte == 7);
    println!("{length} bytes, right: {right}, {:?}", endpoint.copies());
    match right {
        true => Ok(()),
        false => Err("other bytes came than were sent".into()),
    }
}

fn main() -> Outcome {
    let folder = std::env::temp_dir().join(format!("large-{}", std::process::id()));
    let board = Board::open(&folder)?;
    let mut endpoint = Endpoint::open(&board, &Options::default())?;
    let address = endpoint.address();
    let outcome = std::thread::scope(|scope| {
        let sent = scope.spawn(|| sender(&board, address));
        let received = receiver(&mut endpoint);
        received.and(sent.join().map_err(|_| "the sender panicked")?)
    });
    drop(endpoint);
    std::fs::remove_dir_all(folder)?;
    outcome
}

#[test]
fn a_large_message_arrives() {
    main().unwrap();
}
