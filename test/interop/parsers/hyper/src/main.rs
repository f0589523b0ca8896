//! Says what hyper reads of the messages that come on standard input: as a server of
//! each that begins with Q, as a client that has asked GET or HEAD of G and H.
//!
//! A message is its letter, its length in four bytes, and its bytes. The answer is a
//! length in four bytes and lines of text, all values in hexadecimal:
//!
//!     m METHOD-OR-STATUS TARGET    begins a message
//!     f NAME VALUE                 a field of it
//!     t NAME VALUE                 a trailer field of it
//!     b BODY                       ends it: it was read whole
//!     e TEXT                       why no other was read

mod wire;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::rc::Rc;
use wire::Wire;

fn main() -> io::Result<()> {
    let mut from = io::stdin().lock();
    let mut to = io::stdout().lock();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    loop {
        let mut head = [0; 5];
        if from.read_exact(&mut head).is_err() {
            return Ok(());
        }
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut raw = vec![0; length as usize];
        from.read_exact(&mut raw)?;
        let local = tokio::task::LocalSet::new();
        let said = match head[0] {
            b'Q' => local.block_on(&runtime, serve(raw)),
            b'H' => local.block_on(&runtime, ask("HEAD", raw)),
            _ => local.block_on(&runtime, ask("GET", raw)),
        };
        to.write_all(&(said.len() as u32).to_be_bytes())?;
        to.write_all(said.as_bytes())?;
        to.flush()?;
    }
}

/// serve reads requests until one cannot be read.
async fn serve(raw: Vec<u8>) -> String {
    let said = Rc::new(RefCell::new(String::new()));
    let log = said.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let log = log.clone();
        async move {
            let (head, body) = request.into_parts();
            let mut text = String::new();
            let target = head.uri.to_string();
            start(&mut text, head.method.as_str(), &target, &head.headers);
            end(&mut text, body).await;
            log.borrow_mut().push_str(&text);
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let result = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .serve_connection(Wire::new(raw, true), service)
        .await;
    if let Err(err) = result {
        let _ = writeln!(said.borrow_mut(), "e {}", hex(err.to_string().as_bytes()));
    }
    let text = said.borrow().clone();
    text
}

/// ask reads the final answer to a request.
async fn ask(method: &str, raw: Vec<u8>) -> String {
    let mut text = String::new();
    let (mut sender, connection) =
        match hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(Wire::new(raw, false)).await {
            Ok(pair) => pair,
            Err(err) => return format!("e {}\n", hex(err.to_string().as_bytes())),
        };
    let connection = tokio::task::spawn_local(connection);
    let request = Request::builder().method(method).uri("/").header("host", "a").body(Empty::new()).unwrap();
    match sender.send_request(request).await {
        Err(err) => {
            let _ = writeln!(text, "e {}", hex(err.to_string().as_bytes()));
        }
        Ok(answer) => {
            let (head, body) = answer.into_parts();
            start(&mut text, head.status.as_str(), "", &head.headers);
            end(&mut text, body).await;
        }
    }
    connection.abort();
    text
}

fn start(text: &mut String, what: &str, target: &str, fields: &HeaderMap) {
    let _ = writeln!(text, "m {} {}", hex(what.as_bytes()), hex(target.as_bytes()));
    lines(text, 'f', fields);
}

fn lines(text: &mut String, letter: char, fields: &HeaderMap) {
    for (name, value) in fields {
        let _ = writeln!(text, "{letter} {} {}", hex(name.as_str().as_bytes()), hex(value.as_bytes()));
    }
}

async fn end(text: &mut String, body: Incoming) {
    match body.collect().await {
        Err(err) => {
            let _ = writeln!(text, "e {}", hex(err.to_string().as_bytes()));
        }
        Ok(whole) => {
            if let Some(trailer) = whole.trailers() {
                lines(text, 't', trailer);
            }
            let _ = writeln!(text, "b {}", hex(&whole.to_bytes()));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::from("x");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
