//! Publishes the messages of its standard input with Aeron's C client: each is a length (u32, little-endian) and its
//! bytes.
//!
//! Usage: rust-publisher AERON_DIR CHANNEL STREAM_ID. It waits for a subscriber, publishes all messages in their order,
//! and prints their number. A wait that exceeds its limit ends the program with an error.

use rusteron_client::{Aeron, AeronContext, AeronPublication};
use std::error::Error;
use std::ffi::CString;
use std::io::{self, ErrorKind, Read};
use std::thread;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60); // for the driver, a subscriber, and room in the term buffer
const PAUSE: Duration = Duration::from_millis(1);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, aeron_dir, channel, stream_id] = arguments.as_slice() else {
        return Err("usage: rust-publisher AERON_DIR CHANNEL STREAM_ID".into());
    };
    let context = AeronContext::new()?;
    context.set_dir(&CString::new(aeron_dir.as_str())?)?;
    let client = Aeron::new(&context)?;
    client.start()?;
    let publication = client
        .async_add_publication(&CString::new(channel.as_str())?, stream_id.parse()?)?
        .poll_blocking(TIMEOUT)?;
    let mut input = io::stdin().lock();
    let mut count = 0;
    while let Some(message) = read_message(&mut input)? {
        offer(&publication, &message).map_err(|error| format!("message {count}: {error}"))?;
        count += 1;
    }
    println!("{count}");
    Ok(())
}

/// Returns None at the end of the input. An end inside a message is an error.
fn read_message(input: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match input.read(&mut length[..1])? {
        0 => return Ok(None),
        _ => input.read_exact(&mut length[1..])?,
    }
    let mut message = vec![0; u32::from_le_bytes(length) as usize];
    input.read_exact(&mut message).map_err(|_| {
        io::Error::new(
            ErrorKind::UnexpectedEof,
            format!("a message of {} bytes is cut", message.len()),
        )
    })?;
    Ok(Some(message))
}

fn offer(publication: &AeronPublication, message: &[u8]) -> Result<(), Box<dyn Error>> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match publication.offer(message) {
            Ok(_) => return Ok(()),
            Err(error) if !error.is_retryable() => return Err(error.into()),
            Err(error) if Instant::now() > deadline => {
                return Err(format!("the offer still failed after {TIMEOUT:?}: {error}").into())
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}
